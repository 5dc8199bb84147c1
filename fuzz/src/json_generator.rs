//! Generates valid JSON with unusual whitespace, escapes and duplicates from a script of bytes.
//!
//! Mutations of the script are always valid JSON, whereas mutations of JSON text seldom are.

use bowline_types::meta_key;

/// Generates JSON, which is valid for every script.
pub(super) fn generate_json(script: &[u8]) -> String {
    let mut generator = JsonGenerator {
        script: script.iter(),
        text: String::new(),
    };
    // Mostly objects, because most of the functions under test need one.
    match generator.number_below(4) {
        0 => generator.value(MAX_DEPTH),
        _ => generator.object(MAX_DEPTH),
    }
    generator.text
}

struct JsonGenerator<'a> {
    script: std::slice::Iter<'a, u8>,
    text: String,
}

impl JsonGenerator<'_> {
    /// Returns a number below `end`; 0 at the end of the script.
    fn number_below(&mut self, end: usize) -> usize {
        self.script
            .next()
            .map_or(0, |byte| usize::from(*byte) % end)
    }

    fn push_one_of(&mut self, tokens: &[&str]) {
        let token = tokens[self.number_below(tokens.len())];
        self.text.push_str(token);
    }

    fn value(&mut self, depth: usize) {
        self.push_one_of(WHITESPACE);
        match self.number_below(if depth == 0 { 3 } else { 6 }) {
            0 => self.push_one_of(SCALARS),
            1 | 2 => self.string(),
            3 => self.array(depth - 1),
            _ => self.object(depth - 1),
        }
        self.push_one_of(WHITESPACE);
    }

    fn array(&mut self, depth: usize) {
        self.text.push('[');
        for at in 0..self.number_below(4) {
            if at > 0 {
                self.text.push(',');
            }
            self.value(depth);
        }
        self.push_one_of(WHITESPACE);
        self.text.push(']');
    }

    fn object(&mut self, depth: usize) {
        self.text.push('{');
        for at in 0..self.number_below(7) {
            if at > 0 {
                self.text.push(',');
            }
            self.push_one_of(WHITESPACE);
            self.name();
            self.push_one_of(WHITESPACE);
            self.text.push(':');
            self.value(depth);
        }
        self.push_one_of(WHITESPACE);
        self.text.push('}');
    }

    /// Writes one of a few names, so that duplicates occur.
    fn name(&mut self) {
        match self.number_below(NAMES.len() + 1).checked_sub(1) {
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
        for _ in 0..self.number_below(5) {
            self.push_one_of(STRING_PARTS);
        }
        self.text.push('"');
    }
}

const MAX_DEPTH: usize = 5;

const WHITESPACE: &[&str] = &["", "", "", " ", "\n", "\t\r\n  "];

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

const STRING_PARTS: &[&str] = &[
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
