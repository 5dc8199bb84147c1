//! `bowline replay` against the fixture.

use serde_json::Value;

use crate::support::{BOWLINE, Recorded, Running, VERSIONS, in_time, output_of};

#[tokio::test]
async fn the_same_server_answers_the_same_over_stdio_and_http_in_both_eras() {
    in_time(async {
        let running = Running::start(&["serve-demo", "--transport", "http"]).await;
        for recorded_version in VERSIONS {
            let recorded = Recorded::new(recorded_version).await;
            for version in VERSIONS {
                let options = [
                    "replay",
                    &recorded.file,
                    "--yes",
                    "--protocol-version",
                    version,
                ];
                for target in [&["--", BOWLINE, "serve-demo"][..], &[running.url.as_str()]] {
                    let (stdout, stderr, code) = output_of(&[&options[..], target].concat()).await;

                    assert_eq!(code, 0, "{stdout}{stderr}");
                    let summary = stdout.lines().last().unwrap();
                    assert!(
                        summary.contains(version) && summary.contains("same"),
                        "{stdout}"
                    );
                    assert!(!summary.contains("different"), "{stdout}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn another_answer_is_printed_with_its_path_and_exit_code_6() {
    in_time(async {
        let recorded = Recorded::new("2026-07-28").await;
        // The recorded server now says something else.
        let text = std::fs::read_to_string(&recorded.file).unwrap();
        let changed = text.replace(r#""text":"42""#, r#""text":"43""#);
        assert_ne!(text, changed);
        std::fs::write(&recorded.file, changed).unwrap();
        let replay = ["replay", &recorded.file, "--yes"];
        let target = ["--", BOWLINE, "serve-demo"];

        let (stdout, _, code) = output_of(&[&replay[..], &target].concat()).await;
        let json = ["--json", "--concurrent"];
        let (lines, _, json_code) = output_of(&[&replay[..], &json, &target].concat()).await;
        let ignore = ["--ignore", "result.content[*].text", "--quiet"];
        let (quiet, _, ignored) = output_of(&[&replay[..], &ignore, &target].concat()).await;

        assert_eq!((code, json_code, ignored), (6, 6, 0), "{stdout}");
        assert!(
            stdout.contains("result.content[0].text\n           - \"43\"\n           + \"42\""),
            "{stdout}"
        );
        assert!(
            stdout.lines().all(|line| line.chars().count() <= 80),
            "{stdout}"
        );
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let different = lines
            .iter()
            .find(|line| line["outcome"] == "different")
            .unwrap();
        assert_eq!(different["name"], "add");
        assert_eq!(
            different["differences"][0]["path"],
            "result.content[0].text"
        );
        assert_eq!(lines.last().unwrap()["summary"]["different"], 1);
        assert_eq!(quiet.lines().count(), 1, "{quiet}");
    })
    .await;
}

#[tokio::test]
async fn tools_that_may_change_something_need_consent() {
    in_time(async {
        let recorded = Recorded::new("2026-07-28").await;

        let arguments = ["replay", &recorded.file, "--", BOWLINE, "serve-demo"];
        let (stdout, stderr, code) = output_of(&arguments).await;

        assert_eq!((stdout.as_str(), code), ("", 2), "{stderr}");
        assert!(
            stderr.contains("does not declare as read-only: ask"),
            "{stderr}"
        );
        assert!(stderr.contains(" --yes -- "), "{stderr}");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_has_its_own_exit_code() {
    in_time(async {
        let recorded = Recorded::new("2026-07-28").await;

        let arguments = ["replay", &recorded.file, "--", "no-such-program"];
        let (_, stderr, code) = output_of(&arguments).await;

        assert_eq!(code, 3, "{stderr}");
    })
    .await;
}
