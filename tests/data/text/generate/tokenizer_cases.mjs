// Writes base_tokenizer.json, tokenizers.jsonl and demo_ids.jsonl. See README.md.
import fs from 'node:fs';
import { createRequire } from 'node:module';
const require = createRequire(process.cwd() + '/');
const { Tokenizer } = require('tokenizers');

const out = new URL('..', import.meta.url).pathname;
const demo = process.argv[2];

const corpus = `The river ran under the old mill, and the miller's daughter counted 1, 2, 3 sacks of flour.
"Don't you think it's late?" she'd asked; they'll come at 10:45, we've waited since 1999. I'm sure you're right!
naïve café, Größe, über, São Paulo, москва и снег, 你好世界 你好, こんにちは, 안녕하세요, שלום, مرحبا, नमस्ते 👍 👍🏽 🙂
for (int i = 0; i < count; ++i) { total += values[i] * 2; }\n\n\t\treturn total;\n    def sum(x): return x + 1
            indented            more      spaces    here  and there\r\n\r\n`.repeat(3);

// The alphabet of byte-level BPE.
const letters = [];
for (let byte = 0, next = 256; byte < 256; ++byte) {
  const shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  letters.push(String.fromCodePoint(shown ? byte : next++));
}

function learn(text, count) {
  let words = text.match(/ ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu)
    .map((word) => [...Buffer.from(word)].map((byte) => letters[byte]));
  const merges = [];
  while (merges.length < count) {
    const counts = new Map();
    for (const word of words)
      for (let i = 0; i + 1 < word.length; ++i) {
        const pair = word[i] + ' ' + word[i + 1];
        counts.set(pair, (counts.get(pair) || 0) + 1);
      }
    const [best] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    if (!best) break;
    const [left, right] = best[0].split(' ');
    merges.push([left, right]);
    words = words.map((word) => {
      const merged = [];
      for (let i = 0; i < word.length; ++i)
        if (i + 1 < word.length && word[i] === left && word[i + 1] === right) merged.push(left + right), ++i;
        else merged.push(word[i]);
      return merged;
    });
  }
  return merges;
}

const merges = learn(corpus, 420);
const vocab = {};
for (const token of [...letters, ...merges.map(([a, b]) => a + b)]) vocab[token] = Object.keys(vocab).length;
const size = Object.keys(vocab).length;
const token = (id, content, more = {}) => ({ id: size + id, content, single_word: false, lstrip: false,
  rstrip: false, normalized: false, special: true, ...more });
const base = {
  version: '1.0', truncation: null, padding: null,
  added_tokens: [token(0, '<|end|>'), token(1, '<|start|>'), token(2, '<tool>', { special: false })],
  normalizer: { type: 'NFC' },
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
  post_processor: null,
  decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null,
    end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges },
};
fs.writeFileSync(out + 'base_tokenizer.json', JSON.stringify(base));

const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
const sequence = (...steps) => ({ pre_tokenizer: { type: 'Sequence', pretokenizers: [...steps, byteLevel] } });
const split = (pattern, behavior = 'Isolated', invert = false) => ({ type: 'Split',
  pattern: typeof pattern === 'string' ? { Regex: pattern } : pattern, behavior, invert });
const llama = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const o200k = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const deepseek = [split('\\p{N}{1,3}'), split('[一-龥぀-ゟ゠-ヿ]+'),
  split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")];
const behaviours = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];
// Vocabularies without some tokens; others take their ids, since the library numbers added tokens behind a
// vocabulary by its size.
const without = (...names) => Object.fromEntries(names.flatMap((name, i) => [[name, null],
  ['unused ' + i, vocab[name]]]));
const variants = {
  gpt2: {},
  prefix_space: { pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true } },
  no_normalizer: { normalizer: null },
  nfkc: { normalizer: { type: 'Sequence', normalizers: [{ type: 'NFKC' }] } },
  nfd: { normalizer: { type: 'NFD' } },
  llama3: sequence(split(llama)),
  llama3_removed_inverted: sequence(split(llama, 'Removed', true)),
  o200k: sequence(split(o200k)),
  deepseek: sequence(...deepseek),
  digits: sequence({ type: 'Digits', individual_digits: true }, split(llama)),
  digit_groups: sequence({ type: 'Digits', individual_digits: false }),
  possessive: sequence(split('\\p{L}++|\\p{N}{1,3}+|\\s++|\\W')),
  classes: sequence(split('\\w+|\\s|[^\\s\\w]+')),
  anchors: sequence(split('^\\s+|\\S+$|.')),
  ignore_merges: { model: { ignore_merges: true, merges: merges.slice(0, 60) }, ...sequence(split(llama)) },
  few_bytes_dropped: { model: { vocab: without('q', 'Q') } },
  few_bytes_unknown: { model: { vocab: without('q', 'z', 'Q'), unk_token: '!' } },
  few_bytes_fused: { model: { vocab: without('q', 'z', 'Q'), unk_token: '!', fuse_unk: true } },
  byte_fallback: { model: { vocab: { '¡': null, '<0xC2>': vocab['¡'], 'ÿ': null, '<0xA1>': vocab['ÿ'] },
    byte_fallback: true } },
  flags: { added_tokens: [token(0, '<|end|>', { rstrip: true }), token(1, '<|start|>', { lstrip: true }),
    token(2, 'word', { single_word: true, special: false }), token(3, 'Café', { normalized: true, special: false }),
    token(4, '<|end|>more', {}), token(5, '  ', { special: false, normalized: true }), token(6, 'éx', { special: false }),
    token(7, '▁x▁', { lstrip: true, rstrip: true, special: false })] },
};
for (const behaviour of behaviours) {
  variants['string_' + behaviour] = sequence(split({ String: '--' }, behaviour));
  variants['regex_' + behaviour] = sequence(split('-+|\\s', behaviour));
  variants['inverted_' + behaviour] = sequence(split('-+|\\s', behaviour, true));
}

let state = 20;
const random = (n) => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return state % n; };
const pick = (list) => list[random(list.length)];
const pieces = ['The', ' river', "don't", " I'LL", "'ſ", ' 1234567', '१२३', ' ½', 'ⅷ', ' café', 'cafe\u0301', 'Café',
  '\u1100\u1161\u11a8', '\u212b', '\ufb01', '你好', ' 世界', 'こんにちは', '안녕', ' снег', 'مرحبا', '👍🏽', '👨‍👩‍👧', '\u{1fae8}',
  '\u{1fae9}', ' \u{322ba}', '  ', ' ', '\n', '\n\n', '\r\n', '\t', '    \n  ', '\u00a0', '\u3000', '\u180e', '\u0085', '\u200b',
  '\u200d', '\u2028', '\u0000', '\u007f', '<|end|>', '<|start|>', '<tool>', '<|end|>more', '<|en', '|>', 'word', 'words', '--',
  '---', '-', 'x--y', '▁x▁', 'é', 'qQz', '!', '¡', '(i < 3)', '{}', '/*', "'s", 'ǅ', 'İ', '_', '‿', 'ₐ', '⁵', '①', 'Ⓐ'];
const texts = ['', ' ', 'a', 'The river ran under the old mill.', "it's we've I'M", '  leading and trailing  '];
while (texts.length < 60) {
  let text = '';
  for (let n = 1 + random(9); n > 0; --n) text += pick(pieces) + (random(4) === 0 ? ' ' : '');
  texts.push(text);
}

const patch = (target, change) => {
  if (change === null || typeof change !== 'object' || Array.isArray(change)) return change;
  const result = typeof target === 'object' && target !== null && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(change))
    if (value === null) delete result[key]; else result[key] = patch(result[key], value);
  return result;
};

const lines = [];
for (const [name, change] of Object.entries(variants)) {
  const file = patch(base, change);
  file.model.merges = file.model.merges.filter(([a, b]) => [a, b, a + b].every((t) => t in file.model.vocab));
  const full = { normalizer: null, post_processor: null, ...file };
  const tokenizer = Tokenizer.fromString(JSON.stringify(full));
  const cases = [];
  for (const text of texts) {
    const ids = [...(await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()];
    cases.push({ text, ids, decoded: await tokenizer.decode(ids, false) });
  }
  lines.push(JSON.stringify({ name, patch: { ...change, model: { ...change.model, merges: file.model.merges.length ===
    merges.length ? undefined : file.model.merges } }, cases }));
}
fs.writeFileSync(out + 'tokenizers.jsonl', lines.join('\n') + '\n');

const demoTokenizer = Tokenizer.fromFile(demo);
const special = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<|im_start', 'user\n', 'Once upon a time', ' fox', ' crow,', ' "Hello!"'];
const demoLines = [];
for (let i = 0; i < 150; ++i) {
  let text = i < texts.length ? texts[i] : '';
  if (!text) for (let n = 1 + random(12); n > 0; --n) text += pick(random(2) ? pieces : special) + (random(4) ? '' : ' ');
  const ids = [...(await demoTokenizer.encode(text, null, { addSpecialTokens: false })).getIds()];
  demoLines.push(JSON.stringify({ text, ids }));
}
fs.writeFileSync(out + 'demo_ids.jsonl', demoLines.join('\n') + '\n');
