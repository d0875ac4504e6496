// A conversation: its turns, and the messages that are sent for them.
//
//   const conversation = new Conversation();
//   conversation.onChange = () => keep(conversation.turns);
//   conversation.add({role: 'user', content: 'Hello'});
//   const body = {messages: conversation.messages(system), ...};
//
// Turns: {role: 'user', content} | {role: 'tool', id, name, content} |
//        {role: 'assistant', content, reasoning, toolCalls: [{id, name, arguments}], usage, timing, finish, problem,
//         tokens: [{text, p, top: [{text, p}]}], where log-probabilities were asked for; they are not stored}

export class Conversation {
  constructor(turns = []) {
    this.turns = turns;
    this.onChange = () => {};
  }

  get isEmpty() {
    return this.turns.length === 0;
  }

  add(turn) {
    this.turns.push(turn);
    this.onChange();
    return turn;
  }

  // Takes the last answer away, for a new one.
  dropAnswer() {
    if (this.turns.at(-1)?.role === 'assistant') this.turns.pop();
    this.onChange();
  }

  // From `index` on nothing stays.
  cut(index) {
    this.turns.length = index;
    this.onChange();
  }

  // As the API wants them. An answer that failed before its first word is not part of the conversation, nor are calls
  // that the person went on without answering.
  messages(system) {
    const messages = system ? [{role: 'system', content: system}] : [];
    for (const [index, turn] of this.turns.entries()) {
      if (turn.role === 'assistant') {
        const calls = answeredCalls(turn, this.turns.slice(index + 1));
        if (turn.content || calls.length) messages.push(assistantMessage(turn, calls));
      } else if (turn.role === 'tool') {
        messages.push({role: 'tool', tool_call_id: turn.id, content: turn.content});
      } else {
        messages.push({role: turn.role, content: turn.content});
      }
    }
    return messages;
  }
}

// What was stored as turns, as far as every part of it can be shown; null: it is something else. Storage is shared
// with other versions of the page and open to everybody at this browser.
export function checkedTurns(stored) {
  if (!Array.isArray(stored)) return null;
  const turns = stored.map(checkedTurn);
  return turns.includes(null) ? null : turns;
}

function checkedTurn(turn) {
  const isText = (value) => typeof value === 'string';
  if (!isText(turn?.content)) return null;
  if (turn.role === 'user') return {role: 'user', content: turn.content};
  if (turn.role === 'tool') {
    return isText(turn.id) && isText(turn.name) ? {role: 'tool', id: turn.id, name: turn.name, content: turn.content} : null;
  }
  if (turn.role !== 'assistant' || !isText(turn.reasoning) || !Array.isArray(turn.toolCalls)) return null;
  if (!turn.toolCalls.every((call) => isText(call?.id) && isText(call.name) && isText(call.arguments))) return null;
  const {content, reasoning, toolCalls, usage, timing, finish, problem} = turn;
  return {role: 'assistant', content, reasoning, toolCalls, usage: checkedUsage(usage), timing: numbersOf(timing),
    finish: isText(finish) ? finish : null, problem: isText(problem?.title) ? problem : null};
}

const checkedUsage = (usage) =>
  (Number.isFinite(usage?.completion_tokens) && Number.isFinite(usage.prompt_tokens) ? usage : null);

const numbersOf = (times) => Object.fromEntries(Object.entries(times ?? {}).filter(([, value]) => Number.isFinite(value)));

// An answer that was cut may end in part of a call, which the API would not take back; nor would it calls without
// results.
function answeredCalls({toolCalls, finish}, later) {
  const other = later.findIndex(({role}) => role !== 'tool');
  const results = new Set((other < 0 ? later : later.slice(0, other)).map(({id}) => id));
  return finish === 'tool_calls' && toolCalls.every(({id}) => results.has(id)) ? toolCalls : [];
}

function assistantMessage(turn, calls) {
  const message = {role: 'assistant', content: turn.content};
  if (calls.length) {
    // V3.2 goes on from what it thought before its calls.
    if (turn.reasoning) message.reasoning_content = turn.reasoning;
    message.tool_calls = calls.map(({id, name, arguments: text}) =>
      ({id, type: 'function', function: {name, arguments: text}}));
  }
  return message;
}

const likelihood = (entry) => ({...oneOf(entry), top: (entry.top_logprobs ?? []).map(oneOf)});
const oneOf = ({token, bytes, logprob}) => ({text: readable(token, bytes), p: Math.exp(logprob)});

// Part of a character has no text of its own.
function readable(token, bytes) {
  if (!token.includes('\ufffd') || !bytes) return token;
  return `‹${bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, '0')).join(' ')}›`;
}

// One answer while it arrives: takes the chunks of the stream, keeps times.
export class Answer {
  constructor(now = performance.now()) {
    this.turn = {role: 'assistant', content: '', reasoning: '', toolCalls: [], usage: null, timing: {}, finish: null, problem: null};
    this.start = now;
  }

  take(chunk, now = performance.now()) {
    const {turn} = this;
    if (chunk.usage) turn.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.logprobs?.content) (turn.tokens ??= []).push(...choice.logprobs.content.map(likelihood));
    const {content, reasoning_content: reasoning, tool_calls: calls} = choice.delta ?? {};
    if (content || reasoning || calls) {
      turn.timing.first ??= now - this.start;
      turn.timing.last = now - this.start;
    }
    if (reasoning) turn.reasoning += reasoning;
    if (!reasoning && (content || calls) && turn.reasoning) turn.timing.thought ??= now - this.start - turn.timing.first;
    if (content) turn.content += content;
    for (const call of calls ?? []) this.#takeCall(call);
    if (choice.finish_reason) turn.finish = choice.finish_reason;
  }

  #takeCall({index, id, function: part}) {
    const call = (this.turn.toolCalls[index] ??= {id: '', name: '', arguments: ''});
    if (id) call.id = id;
    if (part?.name) call.name = part.name;
    if (part?.arguments) call.arguments += part.arguments;
  }

  end(now = performance.now()) {
    this.turn.timing.total = now - this.start;
    // A call that was announced out of order leaves no hole behind.
    this.turn.toolCalls = this.turn.toolCalls.filter(Boolean);
    return this.turn;
  }
}
