// What the server is doing where it is not (yet) taking requests: a word for the top bar, and below the bar how far
// loading has come.
//
//   const state = pulseOf(feed);       // {name: 'idle' | 'busy' | 'waiting' | 'down', text}
//   showLoading(feed.readiness);       // {"status": "loading", "phase", "progress", "seconds_left"} of GET /stats

import {formatNumber} from './chart.js';
import {byId} from './dom.js';

const kPhases = {'starting': 'Starting', 'weights': 'Loading the weights', 'memory plan': 'Planning the memory'};
const kWords = {draining: 'Shutting down', stalled: 'Stalled', paused: 'Paused'};

export function pulseOf({current, error, readiness}) {
  const {status, progress} = readiness;
  if (error) return {name: 'down', text: 'Offline'};
  if (status === 'loading') return {name: 'waiting', text: `Loading ${percentOf(progress)}`.trim()};
  if (kWords[status]) return {name: status === 'stalled' ? 'down' : 'waiting', text: kWords[status]};
  const busy = (current.running ?? 0) + (current.queued ?? 0) > 0;
  return busy ? {name: 'busy', text: `${current.running} running · ${formatNumber(current.generation_tokens_per_s ?? 0)} tok/s`}
    : {name: 'idle', text: 'Idle'};
}

export function showLoading({status, phase, progress, seconds_left: secondsLeft}) {
  byId('loading').hidden = status !== 'loading';
  if (status !== 'loading') return;
  byId('loading-phase').textContent = kPhases[phase] ?? phase;
  // Most phases are not measured: they are at nothing until they are over.
  if (progress > 0) byId('loading-bar').value = progress;
  else byId('loading-bar').removeAttribute('value');
  const left = typeof secondsLeft === 'number' ? `, ${timeOf(secondsLeft)} left` : '';
  byId('loading-text').textContent = percentOf(progress) + left;
}

const percentOf = (progress) => (progress > 0 ? `${Math.floor(100 * progress)}%` : '');

function timeOf(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
