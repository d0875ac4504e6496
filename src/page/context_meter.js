// How much of the context the conversation takes, below the message box.
//
//   showContext(conversation.turns, contextOf(info));

import {byId} from './dom.js';

const kNearlyFull = 0.9;

// Of the last answer that was counted: its prompt and itself. Nothing is known before one has come.
export function showContext(turns, contextTokens) {
  const usage = turns.findLast((turn) => turn.usage)?.usage;
  const node = byId('context-used');
  node.hidden = !usage;
  if (!usage) return;
  const used = usage.prompt_tokens + usage.completion_tokens;
  const all = contextTokens ? ` of ${contextTokens.toLocaleString('en')}` : '';
  node.textContent = `${used.toLocaleString('en')}${all} tokens of context used`;
  node.classList.toggle('nearly-full', contextTokens > 0 && used >= kNearlyFull * contextTokens);
}
