// Sphinx 9 asks for this name, and has the stemmer of Latin words under another.
var ChineseStemmer = function () { return new EnglishStemmer(); };

// Chinese has no spaces: what is searched for is cut into words that the index has, longest first.
// searchtools.js takes this function where there is one.
var splitQuery = (query) => {
  const {terms, titleterms} = Search._index;
  const known = (word) => Object.hasOwn(terms, word) || Object.hasOwn(titleterms, word);
  const cut = (text) => {
    const words = [];
    for (let at = 0; at < text.length; ) {
      let end = text.length;
      while (end > at + 1 && !known(text.slice(at, end))) end -= 1;
      if (end > at + 1) words.push(text.slice(at, end));
      at = end;
    }
    return words.length ? words : [text];
  };
  const runs = query.match(/\p{Script=Han}+|[\p{Letter}\p{Number}_]+?(?=\p{Script=Han}|[^\p{Letter}\p{Number}_]|$)/gu) ?? [];
  return runs.flatMap((run) => (/\p{Script=Han}/u.test(run) ? cut(run) : [run]));
};
