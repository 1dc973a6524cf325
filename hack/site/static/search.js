// Copyright The nsinit Authors.
// SPDX-License-Identifier: Apache-2.0

// Finds sections of the documentation. site.js shows what it finds; the tests of hack/site run it as well.
(function () {
  "use strict";

  // A word and its parts: "nsinit.dev/initializing" is found by "initializing", and "NsinitTurnTooLong" by "turn".
  function words(text) {
    const found = [];
    for (const word of text.match(/[A-Za-z0-9]+(?:[-_./][A-Za-z0-9]+)*/g) || []) {
      found.push(word.toLowerCase());
      const parts = word.split(/[-_./]|(?<=[a-z0-9])(?=[A-Z])/);
      if (parts.length > 1) found.push(...parts.map((part) => part.toLowerCase()));
    }
    return found;
  }

  function terms(query) {
    return (query.toLowerCase().match(/[A-Za-z0-9]+(?:[-_./][A-Za-z0-9]+)*/g) || []).slice(0, 8);
  }

  const weights = { heading: 8, page: 5, text: 1 };
  // A page that explains a name comes before the references, which repeat it in their headings.
  const reference = 0.6;

  // prepare counts the words of each section, once.
  function prepare(sections) {
    const vocabulary = new Map(); // word -> section -> weight
    let total = 0;
    const lengths = sections.map((section, number) => {
      let length = 0;
      for (const part of Object.keys(weights)) {
        for (const word of words(section[part] || "")) {
          if (!vocabulary.has(word)) vocabulary.set(word, new Map());
          const counts = vocabulary.get(word);
          counts.set(number, (counts.get(number) || 0) + weights[part]);
          length++;
        }
      }
      total += length;
      return length;
    });
    return { sections, vocabulary, lengths, average: total / Math.max(1, sections.length) };
  }

  // near returns whether one insertion, deletion, replacement or swap makes the same word of both.
  function near(a, b) {
    if (Math.abs(a.length - b.length) > 1) return false;
    let i = 0;
    while (i < a.length && a[i] === b[i]) i++;
    const rest = (x, y, dx, dy) => x.slice(i + dx) === y.slice(i + dy);
    return rest(a, b, 1, 1) || rest(a, b, 1, 0) || rest(a, b, 0, 1) ||
      (a[i] === b[i + 1] && a[i + 1] === b[i] && rest(a, b, 2, 2));
  }

  // matches returns the words for a term, each with how well it fits: itself, words that begin with it, or misspelled.
  function matches(prepared, term, misspelled) {
    const found = [];
    for (const word of prepared.vocabulary.keys()) {
      if (word === term) found.push([word, 1]);
      else if (term.length > 1 && word.startsWith(term)) found.push([word, 0.5 * term.length / word.length + 0.2]);
      else if (misspelled && term.length > 3 && near(term, word)) found.push([word, 0.3]);
    }
    return found;
  }

  // score rates the sections for a term, as BM25 does.
  function score(prepared, term, misspelled) {
    const scores = new Map();
    for (const [word, fit] of matches(prepared, term, misspelled)) {
      const counts = prepared.vocabulary.get(word);
      const rarity = Math.log(1 + prepared.sections.length / counts.size);
      for (const [number, count] of counts) {
        const length = 0.25 + 0.75 * prepared.lengths[number] / prepared.average;
        const value = fit * rarity * count * 2.2 / (count + 1.2 * length);
        scores.set(number, Math.max(scores.get(number) || 0, value));
      }
    }
    return scores;
  }

  // search returns the best sections first. Every term has to occur; if no section has all of them, most terms do.
  function search(prepared, query, most) {
    const asked = terms(query);
    if (asked.length === 0) return [];
    for (const misspelled of [false, true]) {
      const scores = asked.map((term) => score(prepared, term, misspelled));
      for (let required = asked.length; required > (misspelled ? 0 : asked.length - 1); required--) {
        const found = [];
        for (let number = 0; number < prepared.sections.length; number++) {
          const parts = scores.map((term) => term.get(number) || 0).filter((value) => value > 0);
          if (parts.length < required) continue;
          const sum = parts.reduce((a, b) => a + b, 0);
          const section = prepared.sections[number];
          found.push({ section, score: (sum + together(section, asked)) * (section.url.startsWith("docs/reference/") ? reference : 1) });
        }
        if (found.length > 0) return found.sort((a, b) => b.score - a.score).slice(0, most);
      }
    }
    return [];
  }

  // together rates sections higher whose heading, title or text has the terms next to each other.
  function together(section, asked) {
    if (asked.length < 2) return (section.heading || section.page).toLowerCase() === asked[0] ? 4 : 0;
    const phrase = asked.join(" ");
    const has = (text) => (text || "").toLowerCase().includes(phrase);
    return has(section.heading) ? 8 : has(section.page) ? 4 : has(section.text) ? 3 : 0;
  }

  // excerpt cuts out the text around the first term, in pieces, of which every second one is a match.
  function excerpt(text, query, length) {
    const asked = terms(query).sort((a, b) => b.length - a.length);
    const escaped = asked.map((term) => term.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&"));
    const match = new RegExp("(?<![A-Za-z0-9])(" + escaped.join("|") + ")", "gi");
    let at = asked.length > 0 ? text.search(match) : -1;
    at = Math.max(0, at);
    let begin = at < length / 2 ? 0 : at - Math.floor(length / 3);
    if (begin > 0) begin = text.indexOf(" ", begin) + 1;
    let end = begin + length;
    if (end < text.length) end = Math.max(text.lastIndexOf(" ", end), at + 1);
    const cut = (begin > 0 ? "… " : "") + text.slice(begin, end) + (end < text.length ? " …" : "");
    return asked.length > 0 ? cut.split(match) : [cut];
  }

  globalThis.documentation = { prepare, search, excerpt };
})();
