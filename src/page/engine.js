// The live view of the engine: figures of now, and the last five minutes as plots.
//
//   startEngineView(feed);

import {LineChart, formatNumber} from './chart.js';
import {byId, el} from './dom.js';

const percent = (value) => (value === null || value === undefined ? null : 100 * value);
const formatPercent = (value) => (value > 0 && value < 10 ? value.toFixed(1) : String(Math.round(value)));
const percentiles = (key) => ['p50', 'p90', 'p99'].map((name) => ({name, value: (sample) => sample[key]?.[name] ?? null}));

const kCharts = [
  {title: 'Throughput', unit: 'tokens/s', series: [
    {name: 'Generation', value: (sample) => sample.generation_tokens_per_s},
    {name: 'Prompt', value: (sample) => sample.prompt_tokens_per_s}]},
  {title: 'Time to first token', unit: 'ms', series: percentiles('ttft_ms')},
  {title: 'Inter-token latency', unit: 'ms', series: percentiles('itl_ms')},
  {title: 'Load', unit: 'requests', series: [
    {name: 'Running', value: (sample) => sample.running},
    {name: 'Queued', value: (sample) => sample.queued}]},
  {title: 'KV cache in use', unit: '%', max: 100, format: formatPercent, series: [
    {name: 'Running sequences', value: (sample) => percent(sample.kv_usage)}]},
  {title: 'Prefix cache hits', unit: '% of prompt tokens', max: 100, format: formatPercent, series: [
    {name: 'Hit rate', value: (sample) => percent(sample.cache_hit_rate)}]},
];

// When the server speculates.
const kDraftCharts = [
  {title: 'Acceptance', unit: 'per verifying step', series: [
    {name: 'Tokens', value: (sample) => sample.accept_length},
    {name: 'Drafts asked for', value: (sample) => sample.num_drafts}]},
  {title: 'Accepted drafts', unit: '% of those verified', max: 100, format: formatPercent, series: [
    {name: 'Acceptance', value: (sample) => percent(sample.accept_rate)}]},
  {title: 'Drafts', unit: 'tokens/s', series: [
    {name: 'Verified', value: (sample) => sample.drafted_tokens_per_s},
    {name: 'Accepted', value: (sample) => sample.accepted_tokens_per_s}]},
];

// When the server bounds the time of its steps.
const kStepCharts = [
  {title: 'Longest step with answers', unit: 'ms', series: [
    {name: 'Measured', value: (sample) => sample.step_ms?.longest ?? null},
    {name: 'Predicted', value: (sample) => sample.step_ms?.predicted ?? null},
    {name: 'Bound', value: (sample) => sample.step_ms?.bound ?? null}]},
];

const part = (key, scale = 1) => (sample) => {
  const value = sample.step_parts_ms?.[key] ?? null;
  return value === null ? null : scale * value;
};

// Where the time of a step goes, as far as the engine measures it.
const kPartCharts = [
  {title: 'Time of a step', unit: 'ms, mean', series: [
    {name: 'Step', value: part('step')},
    {name: 'Layers', value: part('forward')},
    {name: 'Sampling', value: part('sampling')},
    {name: 'Wait for masks', value: part('mask_wait')},
    {name: 'Other', value: restOfStep}]},
  {title: 'Host’s work on a step', unit: 'µs, mean', series: [
    {name: 'Plan', value: part('plan', 1000)},
    {name: 'Commit', value: part('commit', 1000)},
    {name: 'Hand over', value: part('hand_over', 1000)}]},
];

// The host's work, inputs and the way of the results: what no part that was measured explains. Each mean is of the steps
// that its own histogram had when it was read, and a step may lie between two readings, so the parts may exceed the step
// by a little: then nothing is left.
function restOfStep({step_parts_ms: parts}) {
  if (typeof parts?.forward !== 'number') return null;
  return Math.max(0, parts.step - parts.forward - parts.sampling - parts.mask_wait);
}

const kTiles = [
  {label: 'Running', note: () => 'requests', value: ({current}) => formatNumber(current.running ?? 0)},
  {label: 'Queued', note: () => 'requests', value: ({current}) => formatNumber(current.queued ?? 0)},
  {label: 'Generation', note: () => 'tokens/s', value: ({current}) => formatNumber(current.generation_tokens_per_s ?? 0)},
  {label: 'Prompt', note: () => 'tokens/s', value: ({current}) => formatNumber(current.prompt_tokens_per_s ?? 0)},
  {label: 'KV cache', note: kvNote, value: ({current}) => `${formatPercent(percent(current.kv_usage ?? 0))}%`},
  {label: 'Tokens made', note: () => 'since the start', value: ({current}) => formatNumber(current.output_tokens ?? 0)},
];

const kDraftTiles = [
  {label: 'Draft depth', note: ({current}) => `of ${current.max_drafts} drafts`, value: ({current}) => formatNumber(current.num_drafts ?? 0)},
  {label: 'Accept length', note: () => 'tokens per step', value: ({current}) => (current.accept_length ? formatNumber(current.accept_length) : '–')},
];

function kvNote({current: {kv_blocks: blocks, block_tokens: tokens}}) {
  return blocks ? `of ${formatNumber(blocks * tokens)} tokens` : 'in use';
}

// Each comes once there is something to show in it, at its place in this order.
const kGroups = [
  {applies: () => true, tiles: kTiles, charts: kCharts},
  {applies: (current) => Boolean(current.step_parts_ms), tiles: [], charts: kPartCharts},
  {applies: (current) => current.max_step_ms > 0, tiles: [], charts: kStepCharts},
  {applies: (current) => current.max_drafts > 0, tiles: kDraftTiles, charts: kDraftCharts, tilesClass: 'with-drafts'},
];

export function startEngineView(feed) {
  const tiles = [];
  const charts = [];
  const firstNodes = kGroups.map(() => null);  // the first plot of each group that is there
  const add = (group, index) => {
    if (group.tilesClass) byId('tiles').classList.add(group.tilesClass);
    for (const {label, value, note} of group.tiles) {
      const valueNode = el('span', {class: 'tile-value'}, '–');
      const noteNode = el('span', {class: 'tile-note'});
      byId('tiles').append(el('div', {class: 'tile'}, el('dt', {}, label), el('dd', {}, valueNode, noteNode)));
      tiles.push({value, note, valueNode, noteNode});
    }
    const next = firstNodes.slice(index + 1).find((node) => node) ?? null;
    const added = group.charts.map((options) => new LineChart(options));
    for (const chart of added) byId('charts').insertBefore(chart.node, next);
    charts.push(...added);
    firstNodes[index] = added[0].node;
  };
  add(kGroups[0], 0);

  const show = () => {
    if (byId('view-engine').hidden) return;
    byId('engine-note').textContent = feed.error || 'Live, one sample a second, up to five minutes back';
    byId('engine-note').classList.toggle('bad', Boolean(feed.error));
    kGroups.forEach((group, index) => {
      if (!firstNodes[index] && group.applies(feed.current)) add(group, index);
    });
    for (const {value, note, valueNode, noteNode} of tiles) {
      valueNode.textContent = value(feed);
      noteNode.textContent = note(feed);
    }
    for (const chart of charts) chart.show(feed.samples, feed.now ?? 0);
  };
  feed.listen(show);
  return {show};
}
