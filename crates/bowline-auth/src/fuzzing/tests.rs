//! Runs every property over its seeds and over random mutations of them.

use std::path::Path;

#[test]
fn every_challenge_leads_to_an_admitted_url() {
    check("challenge", super::challenge);
}

#[test]
fn every_unsigned_token_is_refused() {
    check("jws", super::jws);
}

#[test]
fn every_parsed_key_is_usable() {
    check("jwks", super::jwks);
}

#[test]
fn every_accepted_code_has_the_expected_state_and_iss() {
    check("callback", super::callback);
}

/// Runs `property` over the seeds of `target`, and over mutations with a fixed seed.
fn check(target: &str, property: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "no seeds for {target}");
    for seed in &seeds {
        let _guard = PrintOnPanic(seed);
        property(seed);
    }
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..MUTATIONS {
        let input = random.mutation(&seeds);
        let _guard = PrintOnPanic(&input);
        property(&input);
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(&folder).expect("the seeds are part of the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // Sorted, because the order of directory entries is arbitrary and mutations depend on it.
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Prints the input if a property panics.
struct PrintOnPanic<'a>(&'a [u8]);

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns a seed with one to four small changes.
    fn mutation(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.pick(seeds).clone();
        for _ in 0..=self.below(4) {
            let at = self.below(input.len() + 1);
            let end = (at + self.below(12)).min(input.len());
            match self.below(6) {
                0 => drop(input.drain(at..end)),
                1 => input.insert(at, *self.pick(INTERESTING_BYTES)),
                2 => {
                    let copy = input[at..end].to_vec();
                    input.splice(at..at, copy);
                }
                3 => {
                    let token = *self.pick(INTERESTING_TOKENS);
                    input.splice(at..end, token.bytes());
                }
                4 => {
                    let other = self.pick(seeds);
                    let from = self.below(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        input
    }
}

const MUTATIONS: usize = 4_000;

const INTERESTING_BYTES: &[u8] = b"\n\r\0 \t:,;=?\"\\{}[]019aZ-\x7f\x80\xc3\xef\xff";

const INTERESTING_TOKENS: &[&str] = &[
    "\r\n",
    "\n\n",
    "data:",
    "data: x\n",
    "id:",
    "retry:1",
    "\u{feff}",
    "null",
    "true",
    "-1",
    "1.0",
    "1e3",
    "9007199254740993",
    "\"\"",
    "{}",
    "[]",
    "\"id\":1,",
    "\"_meta\":{},",
    "\\u0000",
    "=?base64?",
    "?=",
    "x-mcp-header",
    "2026-07-28",
    "2025-03-26",
    "initialize",
    "tools/call",
    "sql",
];
