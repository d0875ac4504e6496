// The ranks of a server that has several: how they share the work, and a row for each lane, the ranks that run the same
// requests. It is what /server_info says, asked for again while the view is seen.
//
//   startRankTable(facts, () => !byId('view-engine').hidden);

import {formatNumber} from './chart.js';
import {byId, el} from './dom.js';
import {ranksOf} from './model_panel.js';

const kIntervalMs = 2000;

const gigabytes = (value) => (value > 0 ? formatNumber(value) : '–');
const count = (value) => (Number.isFinite(value) ? formatNumber(value) : '–');

const kColumns = [
  ['Running', (state) => count(state.num_running_reqs)],
  ['Waiting', (state) => count(state.num_waiting_reqs)],
  ['Generation, tokens/s', (state) => count(state.last_gen_throughput)],
  ['Weights, GB', (state) => gigabytes(state.memory_usage?.weight)],
  ['KV cache, GB', (state) => gigabytes(state.memory_usage?.kvcache)],
  ['KV cache, tokens', (state) => count(state.memory_usage?.token_capacity)],
];

export function startRankTable(facts, isSeen) {
  const node = byId('ranks');
  facts.listen((info) => {
    const ranks = ranksOf(info);
    node.hidden = !ranks;
    if (ranks) node.replaceChildren(...nodesOf(ranks, info.internal_states ?? []));
  });
  setInterval(() => {
    if (!node.hidden && isSeen() && !document.hidden) facts.refresh();
  }, kIntervalMs);
}

function nodesOf(ranks, states) {
  const titles = el('tr', {}, el('th', {scope: 'col'}, 'Lane'), ...kColumns.map(([title]) => el('th', {scope: 'col'}, title)));
  const rows = states.map((state, i) =>
    el('tr', {}, el('th', {scope: 'row'}, String(i)), ...kColumns.map(([, value]) => el('td', {}, value(state)))));
  return [el('h3', {}, 'Ranks'), el('p', {class: 'engine-note'}, ranks),
    el('div', {class: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': 'Ranks'},
      el('table', {}, el('thead', {}, titles), el('tbody', {}, ...rows)))];
}
