//! Recordings that are damaged: cut, shuffled, with other values.

use bowline::Client;
use bowline_recording::{Mock, Recording, RecordingWriter};
use serde_json::json;

use crate::recorded::{ERAS, Recorded, accept};

/// SplitMix64: the same seed produces the same values.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

const TOKENS: [&str; 12] = [
    "null",
    "[]",
    "{}",
    "1",
    "-1",
    "\"\"",
    "\"a\"",
    "1e999",
    "true",
    "\"mock-0-0\"",
    "[[]]",
    "18446744073709551616",
];

/// Replaces values, swaps lines, and cuts the file.
fn damage(lines: &[String], random: &mut Random) -> String {
    let mut lines = lines.to_vec();
    for _ in 0..=random.below(4) {
        let at = 1 + random.below(lines.len() - 1);
        match random.below(4) {
            0 => {
                let other = 1 + random.below(lines.len() - 1);
                lines.swap(at, other);
            }
            1 => {
                let copy = lines[at].clone();
                lines.push(copy);
            }
            2 => drop(lines.remove(at)),
            _ => {
                // After a colon there is a value, which ends somewhere.
                let line = lines[at].clone();
                let colons: Vec<usize> = line.match_indices(':').map(|(at, _)| at + 1).collect();
                let start = colons[random.below(colons.len())];
                let rest = &line[start..];
                let end = rest.find([',', '}']).unwrap_or(rest.len());
                let token = TOKENS[random.below(TOKENS.len())];
                lines[at] = format!("{}{token}{}", &line[..start], &rest[end..]);
            }
        }
        if lines.len() < 3 {
            break;
        }
    }
    lines.join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_damaged_recording_is_served_without_a_panic() {
    for era in ERAS {
        let mut recorded = Recorded::new(era);
        recorded.ask(json!({}), "Who?", accept("Ada"), "hello Ada");
        recorded.call("now", json!({}), "noon");
        recorded.exchange("tools/list", json!({}), json!({"tools": []}));
        let recording = recorded.recording();
        let mut file = Vec::new();
        let mut writer = RecordingWriter::new(&mut file, &recording.header).unwrap();
        writer.write_all(&recording.events).unwrap();
        let text = String::from_utf8(file).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();

        for seed in 0..300 {
            let damaged = damage(&lines, &mut Random(seed));
            let Ok(recording) = Recording::parse(damaged.as_bytes()) else {
                continue;
            };
            let mock = Mock::new(&recording);
            for version in ["2026-07-28", "2025-11-25"] {
                let client = Client::in_process(&mock).protocol_version(version);
                let Ok(client) = client.await else { continue };
                let second = std::time::Duration::from_secs(1);
                // A panic of the handler becomes this error.
                for call in [client.call_tool("ask", ()), client.call_tool("now", ())] {
                    if let Err(error) = call.timeout(second).await {
                        assert!(
                            !error.to_string().contains("panicked"),
                            "seed {seed}: {damaged}"
                        );
                    }
                }
            }
        }
    }
}
