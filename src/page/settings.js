// The settings: what is sent beside the messages. A field left empty is not sent, so the server's default, which
// stands in it, holds. Kept for the session.
//
//   const settings = new Settings(byId('settings'), {onChange});
//   settings.showDefaults(info);                 // of /server_info
//   const fields = settings.requestFields();     // {temperature: 0.6, tools: [...], ...} or null: a field is wrong

import {el, icon, storage} from './dom.js';
import {contextOf} from './server_facts.js';
import {kExampleTools, toolsProblem} from './tool_definitions.js';

const kKey = 'fathom.settings';
const kNumAlternatives = 5;

const kNumbers = [
  {name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, hint: '0 always takes the likeliest token'},
  {name: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.05, above: true, hint: 'above 0, at most 1'},
  {name: 'top_k', label: 'Top k', min: -1, step: 1, integer: true, hint: '-1 keeps all tokens'},
  {name: 'max_tokens', label: 'Max tokens', min: 1, step: 1, integer: true, hint: 'longest answer'},
  {name: 'seed', label: 'Seed', min: 0, step: 1, integer: true, hint: 'same seed, same answer'},
  {name: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.1, hint: 'against tokens that came before'},
  {name: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.1, hint: 'the more often, the stronger'},
  {name: 'repetition_penalty', label: 'Repetition penalty', min: 0, max: 2, step: 0.05, above: true, hint: '1 does nothing'},
];

export class Settings {
  constructor(container, {onChange = () => {}, onClose = () => {}} = {}) {
    this.values = textsOf(storage.read(kKey, {}));
    this.onChange = onChange;
    this.inputs = new Map();
    this.defaults = {temperature: 1, top_p: 1, repetition_penalty: 1};  // until the server has said them
    this.thinkingIs = 'off';
    container.append(this.#head(onClose), this.#form());
    this.#fillIn();
  }

  // How many settings differ from the defaults.
  get numSet() {
    return Object.values(this.values).filter((value) => value !== '').length;
  }

  get system() {
    return (this.values.system ?? '').trim();
  }

  // Where the model has one way to answer, reasoning is nothing to choose.
  showDefaults(info) {
    const {thinking = 'off', ...sampling} = info.chat_defaults ?? {};
    const context = contextOf(info);
    this.defaults = {...sampling, presence_penalty: 0, frequency_penalty: 0, seed: 'random'};
    if (context) this.defaults.max_tokens = `to ${context.toLocaleString('en')}`;
    for (const {name} of kNumbers) this.inputs.get(name).input.placeholder = this.defaults[name] ?? 'default';
    this.thinkingIs = thinking;
    const isChoice = thinking === 'on' || thinking === 'off';
    for (const input of this.thinking.querySelectorAll('input')) input.disabled = !isChoice;
    this.thinking.querySelector('label').textContent = isChoice ? `Default: ${thinking}` : 'Default';
    this.thinkingHint.textContent = {always: 'This model always reasons.', never: 'This model does not reason.'}[thinking] ?? '';
  }

  requestFields() {
    const fields = {};
    for (const {input, error} of this.inputs.values()) {
      if (error(input.value)) {
        input.focus();
        return null;
      }
    }
    for (const {name} of kNumbers) {
      if (this.values[name]) fields[name] = Number(this.values[name]);
    }
    if (this.values.thinking && !['always', 'never'].includes(this.thinkingIs)) fields.chat_template_kwargs = {thinking: this.values.thinking === 'on'};
    if (this.values.logprobs) Object.assign(fields, {logprobs: true, top_logprobs: kNumAlternatives});
    const tools = (this.values.tools ?? '').trim();
    if (tools) {
      fields.tools = JSON.parse(tools);
      if (this.values.tool_choice) fields.tool_choice = this.values.tool_choice;
    }
    return fields;
  }

  #head(onClose) {
    const close = el('button', {type: 'button', class: 'icon-button', id: 'settings-close', 'aria-label': 'Close settings', onclick: onClose}, icon('close'));
    return el('div', {class: 'settings-head'}, el('h3', {}, 'Settings'),
      el('button', {type: 'button', class: 'text-button', id: 'settings-reset', onclick: () => this.#reset()}, 'Reset'), close);
  }

  #form() {
    const grid = el('div', {class: 'number-grid'}, ...kNumbers.map((spec) => this.#numberField(spec)));
    return el('form', {class: 'settings-form', onsubmit: (event) => event.preventDefault()},
      this.#areaField({name: 'system', label: 'System prompt', rows: 3, placeholder: 'None', error: () => ''}),
      this.#thinkingField(),
      el('fieldset', {}, el('legend', {}, 'Sampling'), grid),
      this.#logprobsField(),
      el('fieldset', {class: 'tools'}, el('legend', {}, 'Tools'),
        el('button', {type: 'button', class: 'text-button', id: 'tools-example', onclick: () => this.#insertExample()}, 'Insert an example'),
        this.#areaField({name: 'tools', label: 'Functions, as a JSON array', rows: 5, placeholder: '[{"type": "function", "function": {…}}]', error: toolsProblem, code: true}),
        el('div', {class: 'tool-row'},
          el('label', {for: 'set-tool_choice'}, 'Use'), this.#toolChoice())));
  }

  #numberField(spec) {
    const id = `set-${spec.name}`;
    const input = el('input', {id, type: 'text', inputmode: spec.integer ? 'numeric' : 'decimal', placeholder: 'default', autocomplete: 'off', 'aria-describedby': `${id}-hint`});
    const hint = el('span', {id: `${id}-hint`, class: 'field-hint'}, spec.hint);
    input.addEventListener('keydown', (event) => this.#stepByArrow(event, spec));
    this.#connect(spec.name, input, hint, (text) => numberError(text, spec));
    return el('div', {class: 'field'}, el('label', {for: id}, spec.label), input, hint);
  }

  #areaField({name, label, rows, placeholder, error, code}) {
    const id = `set-${name}`;
    const input = el('textarea', {id, rows, placeholder, spellcheck: code ? 'false' : null, class: code ? 'mono' : null, 'aria-describedby': `${id}-hint`});
    const hint = el('span', {id: `${id}-hint`, class: 'field-hint'});
    this.#connect(name, input, hint, error);
    return el('div', {class: 'field'}, el('label', {for: id}, label), input, hint);
  }

  #thinkingField() {
    const choices = [['', 'Default'], ['on', 'On'], ['off', 'Off']];
    const group = el('fieldset', {class: 'segmented'}, el('legend', {}, 'Thinking'));
    const row = el('div', {class: 'segments'});
    for (const [value, label] of choices) {
      const input = el('input', {type: 'radio', name: 'thinking', value, id: `thinking-${value || 'default'}`});
      input.addEventListener('change', () => this.#set('thinking', value));
      row.append(input, el('label', {for: input.id}, label));
    }
    this.thinkingHint = el('p', {class: 'field-hint', id: 'thinking-hint'});
    group.append(row, this.thinkingHint);
    this.thinking = row;
    return group;
  }

  #logprobsField() {
    this.logprobs = el('input', {type: 'checkbox', role: 'switch', id: 'set-logprobs', 'aria-describedby': 'set-logprobs-hint'});
    this.logprobs.addEventListener('change', () => this.#set('logprobs', this.logprobs.checked ? 'on' : ''));
    return el('fieldset', {}, el('legend', {}, 'Log-probabilities'),
      el('label', {class: 'switch', for: 'set-logprobs'}, this.logprobs, 'Show how likely each token was'),
      el('p', {id: 'set-logprobs-hint', class: 'field-hint'},
        `Of the answers to come, with the ${kNumAlternatives} likeliest at each place. They are shown as the model writes them, without Markdown; a button below each switches.`));
  }

  #toolChoice() {
    const options = [['', 'when the model wants'], ['required', 'always'], ['none', 'never']];
    const select = el('select', {id: 'set-tool_choice'}, ...options.map(([value, label]) => el('option', {value}, label)));
    select.addEventListener('change', () => this.#set('tool_choice', select.value));
    this.toolChoice = select;
    return select;
  }

  #connect(name, input, hint, error) {
    const usual = hint.textContent;
    const check = () => {
      const problem = error(input.value);
      input.setAttribute('aria-invalid', problem ? 'true' : 'false');
      hint.textContent = problem || usual;
    };
    input.addEventListener('input', () => {
      check();
      this.#set(name, input.value.trim() === '' ? '' : input.value);
    });
    this.inputs.set(name, {input, error, check});
  }

  #stepByArrow(event, spec) {
    if (event.key !== 'ArrowUp' && event.key !== 'ArrowDown') return;
    event.preventDefault();
    const start = Number.isFinite(this.defaults[spec.name]) ? this.defaults[spec.name] : 0;
    const now = event.target.value.trim() === '' ? start : Number(event.target.value);
    if (Number.isNaN(now)) return;
    const low = spec.above ? spec.step : spec.min;
    const next = Math.min(spec.max ?? Infinity, Math.max(low, now + (event.key === 'ArrowUp' ? spec.step : -spec.step)));
    event.target.value = String(Math.round(next * 1000) / 1000);
    event.target.dispatchEvent(new Event('input', {bubbles: true}));
  }

  #insertExample() {
    const {input} = this.inputs.get('tools');
    input.value = JSON.stringify(kExampleTools, null, 2);
    input.dispatchEvent(new Event('input', {bubbles: true}));
    input.focus();
  }

  #reset() {
    this.values = {};
    this.#fillIn();
    storage.write(kKey, this.values);
    this.onChange();
  }

  #fillIn() {
    for (const [name, {input, check}] of this.inputs) {
      input.value = this.values[name] ?? '';
      check();
    }
    this.thinking.querySelector(`#thinking-${this.values.thinking || 'default'}`).checked = true;
    this.toolChoice.value = this.values.tool_choice ?? '';
    this.logprobs.checked = Boolean(this.values.logprobs);
  }

  #set(name, value) {
    this.values[name] = value;
    storage.write(kKey, this.values);
    this.onChange();
  }
}

// Whatever stands in the storage: fields are texts.
const textsOf = (stored) => Object.fromEntries(Object.entries(stored).filter(([, value]) => typeof value === 'string'));

function numberError(text, {min, max, integer, above}) {
  if (text.trim() === '') return '';
  const value = Number(text);
  if (!Number.isFinite(value)) return 'not a number';
  if (integer && !Number.isSafeInteger(value)) return 'a whole number, please';
  if (value < min || (above && value === min)) return above ? `must be above ${min}` : `at least ${min}`;
  if (max !== undefined && value > max) return `at most ${max}`;
  return '';
}
