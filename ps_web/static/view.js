"use strict";
// The state of the page stands in its address: a link shows the same, and a reload loses nothing.

const view = {
  get(key) { return new URLSearchParams(location.hash.slice(1)).get(key) ?? ""; },
  set(key, value) {
    const state = new URLSearchParams(location.hash.slice(1));
    if (value === "") state.delete(key);
    else state.set(key, value);
    history.replaceState(null, "", `${location.pathname}${location.search}#${state}`);
  },
};
