// The ranks of a server that has several: how they share the work, and a row for each lane, the ranks that run the same
// requests. What a lane does is asked of /v1/loads while somebody can see the view.
//
//   startRankTable(facts, () => !byId('view-engine').hidden);

import {fetchJson} from './api.js';
import {formatNumber} from './chart.js';
import {byId, el} from './dom.js';
import {ranksOf} from './model_panel.js';

const kIntervalMs = 2000;

const kColumns = [
  ['Running', (lane) => formatNumber(lane.num_running_reqs)],
  ['Tokens in the cache', (lane) => formatNumber(lane.num_used_tokens)],
  ['of', (lane) => formatNumber(lane.max_total_num_tokens)],
  ['In use, %', (lane) => formatNumber(100 * lane.token_usage)],
];

export function startRankTable(facts, isSeen) {
  const node = byId('ranks');
  const shared = el('p', {class: 'engine-note'});
  const rows = el('tbody');
  const titles = el('tr', {}, el('th', {scope: 'col'}, 'Lane'), ...kColumns.map(([title]) => el('th', {scope: 'col'}, title)));
  node.append(el('h3', {}, 'Ranks'), shared,
    el('div', {class: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': 'Lanes'},
      el('table', {}, el('thead', {}, titles), rows)));
  const show = async () => {
    if (node.hidden || document.hidden || !isSeen()) return;
    try {
      const {loads} = await fetchJson('/v1/loads');
      rows.replaceChildren(...loads.map(rowOf));
    } catch {
      // The top bar says that the server cannot be reached; the next answer brings the rows.
    }
  };
  facts.listen((info) => {
    shared.textContent = ranksOf(info) ?? '';
    node.hidden = !shared.textContent;
    show();
  });
  setInterval(show, kIntervalMs);
}

const rowOf = (lane) =>
  el('tr', {}, el('th', {scope: 'row'}, String(lane.dp_rank)), ...kColumns.map(([, value]) => el('td', {}, value(lane))));
