//! Writes JSON, as oddly as it may be written, as a list of bytes says: a fuzzer that plays with these plays
//! with JSON, where one that plays with text seldom hits upon any.

use bowline_types::meta_key;

/// Some JSON. Whatever the script is, the text is valid.
pub(super) fn write_json(script: &[u8]) -> String {
    let mut writer = Writer {
        script: script.iter(),
        text: String::new(),
    };
    // An object more often than not: most of what looks into JSON wants one.
    match writer.one_of(4) {
        0 => writer.value(DEEPEST),
        _ => writer.object(DEEPEST),
    }
    writer.text
}

struct Writer<'a> {
    script: std::slice::Iter<'a, u8>,
    text: String,
}

impl Writer<'_> {
    /// A number below `end`; 0 once the script is over.
    fn one_of(&mut self, end: usize) -> usize {
        self.script
            .next()
            .map_or(0, |byte| usize::from(*byte) % end)
    }

    fn put(&mut self, words: &[&str]) {
        let word = words[self.one_of(words.len())];
        self.text.push_str(word);
    }

    fn value(&mut self, depth: usize) {
        self.put(BLANKS);
        match self.one_of(if depth == 0 { 3 } else { 6 }) {
            0 => self.put(SCALARS),
            1 | 2 => self.string(),
            3 => self.array(depth - 1),
            _ => self.object(depth - 1),
        }
        self.put(BLANKS);
    }

    fn array(&mut self, depth: usize) {
        self.text.push('[');
        for at in 0..self.one_of(4) {
            if at > 0 {
                self.text.push(',');
            }
            self.value(depth);
        }
        self.put(BLANKS);
        self.text.push(']');
    }

    fn object(&mut self, depth: usize) {
        self.text.push('{');
        for at in 0..self.one_of(7) {
            if at > 0 {
                self.text.push(',');
            }
            self.put(BLANKS);
            self.name();
            self.put(BLANKS);
            self.text.push(':');
            self.value(depth);
        }
        self.put(BLANKS);
        self.text.push('}');
    }

    /// One of a few, so that some stand twice.
    fn name(&mut self) {
        match self.one_of(NAMES.len() + 1).checked_sub(1) {
            None => self.string(),
            Some(at) => {
                self.text.push('"');
                self.text.push_str(NAMES[at]);
                self.text.push('"');
            }
        }
    }

    fn string(&mut self) {
        self.text.push('"');
        for _ in 0..self.one_of(5) {
            self.put(PIECES);
        }
        self.text.push('"');
    }
}

const DEEPEST: usize = 5;

const BLANKS: &[&str] = &["", "", "", " ", "\n", "\t\r\n  "];

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1.0",
    "-1.5e-3",
    "1E+400",
    "18446744073709551616",
    "9007199254740993",
    "\"complete\"",
    "\"input_required\"",
    "\"comple\\u0074e\"",
    "\"private\"",
];

const NAMES: &[&str] = &[
    "_meta",
    "\\u005fmeta",
    "name",
    "na\\u006de",
    "uri",
    "arguments",
    "requestState",
    "resultType",
    "ttlMs",
    "cacheScope",
    "structuredContent",
    "other",
    meta_key::SERVER_INFO,
    meta_key::PROTOCOL_VERSION,
    meta_key::LOG_LEVEL,
    meta_key::PROGRESS_TOKEN,
];

const PIECES: &[&str] = &[
    "a",
    "é",
    "😀",
    " !#",
    "{}[],:",
    "\u{7f}\u{2028}",
    "\\\"",
    "\\\\",
    "\\/\\b\\f\\n\\r\\t",
    "\\u0041",
    "\\u0000",
    "\\ud83d\\ude00",
    "\\ud83d",
    "eight by",
    "sixty-four characters are looked at before a search for more has",
];
