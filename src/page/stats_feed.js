// The samples of GET /stats, asked for once a second while somebody can see the page.
//
//   const feed = new StatsFeed();
//   feed.listen(({current, samples, model, readiness}) => draw(samples));   // error: a sentence, when the last try failed
//   feed.start();

import {fetchJson} from './api.js';

const kIntervalMs = 1000;
const kKeptSeconds = 300;

export class StatsFeed {
  constructor() {
    this.samples = [];
    this.current = {};
    this.readiness = {};  // what /readyz says
    this.model = '';
    this.numRestarts = 0;
    this.listeners = [];
    this.error = '';
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  start() {
    document.addEventListener('visibilitychange', () => this.#schedule(0));
    this.#schedule(0);
  }

  // A hidden page asks for nothing; what it missed comes with the next answer.
  #schedule(delayMs) {
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.#poll(), delayMs);
  }

  async #poll() {
    if (this.polling) return;
    this.polling = true;
    try {
      const last = this.samples.at(-1)?.t;
      const stats = await fetchJson(last ? `/stats?since=${last}` : '/stats');
      this.#take(stats);
      this.error = '';
    } catch (error) {
      this.error = error.message;
    }
    this.polling = false;
    for (const listener of this.listeners) listener(this);
    this.#schedule(this.error ? 3 * kIntervalMs : kIntervalMs);
  }

  #take({now, model, current, samples, readiness}) {
    // The server was restarted: its clock may go on, its samples begin anew.
    const isNew = current.output_tokens < this.current.output_tokens ||
      (readiness?.status === 'loading' && this.readiness.status !== 'loading');
    if (isNew) {
      this.samples = [];
      ++this.numRestarts;
    }
    this.model = model;
    this.current = current;
    this.readiness = readiness ?? {};
    this.now = now;
    this.samples.push(...samples);
    this.samples = this.samples.filter((sample) => sample.t > now - kKeptSeconds);
  }
}
