// A panel beside the chat that a button opens and closes; on a narrow page it lies over the chat.
//
//   const panel = new SidePanel('settings', {openAtFirst: true});   // #settings, #settings-toggle, #settings-close
//   panel.show(false);

import {byId} from './dom.js';

const kWideEnough = matchMedia('(min-width: 1100px)');

export class SidePanel {
  constructor(name, {openAtFirst = false} = {}) {
    this.name = name;
    this.node = byId(name);
    this.toggle = byId(`${name}-toggle`);
    this.toggle.addEventListener('click', () => this.show(this.node.hidden));
    this.node.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.isOverChat) this.show(false);
    });
    this.node.hidden = !(openAtFirst && kWideEnough.matches);
    this.toggle.setAttribute('aria-expanded', String(!this.node.hidden));
  }

  get isOverChat() {
    return !this.node.hidden && !kWideEnough.matches;
  }

  show(open) {
    this.node.hidden = !open;
    this.toggle.setAttribute('aria-expanded', String(open));
    if (this.isOverChat) byId(`${this.name}-close`).focus();
    if (!open) this.toggle.focus();
  }
}
