// Tool calls of an answer, the form in which their results are entered, and how a result looks. This page runs no
// tools: the person says what came of a call.

import {copyButton, el, icon} from './dom.js';
import {jsonNodes, prettyJson} from './json_view.js';

export function callCard(call, running) {
  return el('section', {class: 'tool-call', 'aria-label': `Tool call ${call.name}`},
    el('header', {}, icon('tool'), el('code', {class: 'tool-name'}, call.name), el('span', {class: 'tag'}, 'tool call'),
      running ? null : copyButton('Copy arguments', () => call.arguments)),
    el('pre', {tabindex: '0'}, el('code', {}, ...jsonNodes(prettyJson(call.arguments)))));
}

export function toolResultView(turn) {
  return el('article', {class: 'message tool-result', 'aria-label': `Result of ${turn.name}`},
    el('span', {class: 'tool-result-name'}, icon('tool'), `Result of ${turn.name}`),
    el('pre', {tabindex: '0'}, el('code', {}, ...jsonNodes(prettyJson(turn.content)))));
}

// onResults([{role: 'tool', id, name, content}]) gets one turn for each call, once each has a result.
export function toolResultForm(calls, onResults) {
  const fields = calls.map((call, i) => new ResultField(call, i, calls.length));
  const form = el('form', {class: 'result-form', 'aria-label': 'Results of the tool calls', novalidate: true},
    el('p', {class: 'field-hint'}, 'Nothing is run here: enter what each tool answers, and the model goes on with it.'),
    ...fields.flatMap((field) => field.nodes),
    el('button', {type: 'submit', class: 'quiet-button'}, calls.length > 1 ? 'Send the results' : 'Send the result'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const missing = fields.filter((field) => !field.check());
    if (missing.length) missing[0].area.focus();
    else onResults(fields.map(({call, area}) => ({role: 'tool', id: call.id, name: call.name, content: area.value})));
  });
  return form;
}

class ResultField {
  constructor(call, index, numCalls) {
    this.call = call;
    const id = `result-${index}`;
    this.area = el('textarea', {id, rows: 2, class: 'mono', placeholder: '{"celsius": 21}', spellcheck: 'false',
      'aria-describedby': `${id}-hint`});
    this.hint = el('p', {id: `${id}-hint`, class: 'field-hint'});
    const number = numCalls > 1 ? `${index + 1}. ` : '';
    this.nodes = [el('label', {for: id}, number, 'Result of ', el('code', {}, call.name)), this.area, this.hint];
    this.area.addEventListener('input', () => this.hint.textContent && this.check());
  }

  check() {
    const missing = this.area.value.trim() === '';
    this.area.setAttribute('aria-invalid', String(missing));
    this.hint.textContent = missing ? 'Enter a result; for a tool that answers nothing, {} will do.' : '';
    return !missing;
  }
}
