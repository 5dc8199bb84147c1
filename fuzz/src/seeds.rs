//! Runs a property over its seeds and over random mutations of them.

use std::fs;
use std::path::Path;

/// Runs `property` over the seeds of `target`, and over mutations of them that are the same in every run.
///
/// # Panics
///
/// If the property does not hold for an input, which is printed, or if there are no seeds.
pub fn check_seeds(target: &str, property: fn(&[u8])) {
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
        .join("corpus")
        .join(target);
    let entries = fs::read_dir(&folder).expect("the seeds are part of the repository");
    let entries = entries.map(|entry| entry.expect("the folder is readable"));
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    // The order of a directory listing depends on the file system, and the mutations depend on the order.
    paths.sort();
    let seeds = paths.iter().map(fs::read);
    seeds.map(|seed| seed.expect("a seed is a file")).collect()
}

/// Prints the input on a panic.
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
        usize::try_from(self.0 % end.max(1) as u64).expect("it is less than `end`")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_decodes_survives_a_round_trip() {
        check_seeds("message", crate::message);
    }

    #[test]
    fn partial_and_full_decoding_of_json_agree() {
        check_seeds("json", crate::json);
    }

    #[test]
    fn partial_decoding_of_generated_json_agrees_with_serde() {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        for _ in 0..MUTATIONS {
            let script = random.bytes(200);
            let _guard = PrintOnPanic(&script);
            crate::json(&script);
        }
    }

    #[test]
    fn every_event_stream_decodes_the_same_in_chunks_of_any_size() {
        check_seeds("sse", crate::sse);
    }

    #[test]
    fn every_header_that_is_mirrored_passes_the_check() {
        check_seeds("headers", crate::headers);
    }

    #[test]
    fn every_request_is_admitted_or_rejected_consistently() {
        check_seeds("admission", crate::admission);
    }

    #[test]
    fn every_schedule_keeps_the_invariants_of_the_mux() {
        check_seeds("mux", crate::mux);
    }

    #[test]
    fn every_recording_is_read_checked_compared_and_exported() {
        check_seeds("recording", crate::recording);
    }

    impl Random {
        fn bytes(&mut self, max_len: usize) -> Vec<u8> {
            let length = self.below(max_len + 1);
            (0..length)
                .map(|_| self.below(256).to_le_bytes()[0])
                .collect()
        }
    }
}
