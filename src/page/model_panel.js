// What opens below the model's name: what is served, how, where its API is described.
//
//   startModelPanel(facts);

import {byId, el} from './dom.js';
import {formatNumber} from './chart.js';
import {contextOf} from './server_facts.js';

const tokens = (number) => `${Number(number).toLocaleString('en')} tokens`;
const gigabytes = (number) => (number > 0 ? `${number < 10 ? number.toFixed(2) : formatNumber(number)} GB` : null);
const joined = (...parts) => parts.filter(Boolean).join(', ') || null;
const ofType = (dtype, what) => (dtype && dtype !== 'auto' ? dtype : what);

// A row is left out where the server says nothing of it.
const kRows = [
  ['Model', (info) => info.served_model_name],
  ['Read from', (info) => info.model_path],
  ['Context', (info) => contextOf(info) && tokens(contextOf(info))],
  ['Weights', (info, {memory_usage: memory = {}}) => joined(ofType(info.dtype, 'as in the checkpoint'), gigabytes(memory.weight))],
  ['Device', (info) => joined(info.runs_on ?? info.device, ranksOf(info))],
  ['KV cache', (info, {memory_usage: memory = {}}) =>
    joined(info.max_total_num_tokens && tokens(info.max_total_num_tokens), gigabytes(memory.kvcache), ofType(info.kv_cache_dtype, ''))],
  ['Prefix cache', (info) => (info.disable_radix_cache === undefined ? null : info.disable_radix_cache ? 'off' : 'on')],
  ['Chat format', (info) => info.chat_format],
  ['Version', (info) => info.version],
];

// How many ranks share what, where there are several; else null.
export function ranksOf({tp_size: tensor, ep_size: expert, dp_size: lanes}) {
  if (!(tensor > 1 || expert > 1 || lanes > 1)) return null;
  const ranks = `${Math.max(tensor, expert, lanes)} ranks`;
  return joined(lanes > 1 ? `${ranks} in ${lanes} lanes` : ranks, expert > 1 ? `experts over ${expert}` : null);
}

export function startModelPanel(facts) {
  const list = el('dl', {class: 'facts'}, el('dd', {}, 'Not known yet: the server has not answered.'));
  byId('model-panel').append(
    el('h2', {}, 'Model and server'), list,
    el('p', {class: 'panel-links'},
      el('a', {href: '/docs', target: '_blank', rel: 'noopener'}, 'API documentation'),
      el('a', {href: '/metrics', target: '_blank', rel: 'noopener'}, 'Metrics')));
  facts.listen((info) => {
    const rows = kRows.map(([name, value]) => [name, value(info, info.internal_states?.[0] ?? {})]).filter(([, value]) => value);
    list.replaceChildren(...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, String(value))]));
  });
}
