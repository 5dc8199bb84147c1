//! `show`, `check`, `diff` and `export`.

use serde_json::Value;

use crate::support::{Folder, bowline, in_time, lines_of};

const HEADER: &str = r#"{"format":"bowline-recording","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio","target":"server --fast"}"#;

/// Writes a recording of messages: `>` of the client, `<` of the server, a millisecond apart.
fn write(folder: &Folder, name: &str, messages: &[&str]) -> String {
    let mut text = format!("{HEADER}\n");
    for (at, message) in messages.iter().enumerate() {
        let (from, message) = message.split_at(1);
        let from = if from == ">" { "client" } else { "server" };
        let at = at * 1000;
        text.push_str(&format!(
            "{{\"at\":{at},\"connection\":1,\"event\":\"message\",\"from\":\"{from}\",\"message\":{message}}}\n"
        ));
    }
    let file = folder.file(name);
    std::fs::write(&file, text).unwrap();
    file
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn request(id: u32, tool: &str) -> String {
    format!(
        r#">{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}",{META}}}}}"#
    )
}

fn result(id: u32, text: &str) -> String {
    format!(
        r#"<{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

/// A call that is answered, one that is cancelled, one that fails, one that hangs, and noise.
fn eventful(folder: &Folder) -> String {
    let cancel = r#">{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"enough"}}"#;
    let error =
        r#"<{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no\u001b[31m such tool"}}"#;
    let messages = [
        request(1, "add"),
        result(1, "3"),
        request(2, "slow"),
        cancel.to_owned(),
        request(3, "missing"),
        error.to_owned(),
        request(4, "hangs"),
    ];
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    write(folder, "eventful.jsonl", &messages)
}

#[tokio::test]
async fn show_prints_a_timeline_with_filters() {
    in_time(async {
        let folder = Folder::new();
        let file = eventful(&folder);
        let (all, code) = lines_of(&["show", &file]).await;
        assert_eq!(code, 0);
        for text in [
            "tools/call add",
            "✗ cancelled",
            "✗→ cancel by frame \"enough\", silent afterwards",
            "error -32602",
            "‼ hung",
        ] {
            assert!(
                all.iter().any(|line| line.contains(text)),
                "{text}: {all:#?}"
            );
        }
        assert!(
            !all.concat().contains('\u{1b}'),
            "escape codes of a server are not printed"
        );
        assert!(
            all.last()
                .unwrap()
                .contains("4 exchanges, 1 cancelled, 1 hung")
        );

        for (filter, expected) in [
            (&["--tool", "add"][..], 1),
            (&["--method", "tools"], 4),
            (&["--method", "tool"], 0),
            (&["--errors"], 2),
            (&["--cancelled"], 1),
            (&["--errors", "--cancelled"], 3),
            (&["--slow", "1ms"], 3),
            (&["--slow", "1h"], 0),
        ] {
            let (lines, _) = lines_of(&[&["show", &file, "--json"], filter].concat()).await;
            assert_eq!(lines.len(), expected, "{filter:?}: {lines:#?}");
        }
        let (messages, _) = lines_of(&["show", &file, "--messages"]).await;
        assert_eq!(messages.len(), 7);
    })
    .await;
}

#[tokio::test]
async fn show_prints_one_exchange_in_full() {
    in_time(async {
        let folder = Folder::new();
        let file = eventful(&folder);
        let (lines, code) = lines_of(&["show", &file, "--exchange", "1"]).await;
        assert_eq!(code, 0);
        assert!(
            lines.iter().any(|line| line.contains("\"text\": \"3\"")),
            "{lines:#?}"
        );
        let (lines, _) = lines_of(&["show", &file, "--exchange", "2", "--json"]).await;
        let value: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(value["state"], "cancelled");
        assert_eq!(value["events"].as_array().unwrap().len(), 2);

        let missing = bowline(&["show", &file, "--exchange", "9"]).await;
        assert_eq!(missing.status.code(), Some(2));
        let not_a_recording = bowline(&["show", "/dev/null"]).await;
        assert_eq!(not_a_recording.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&not_a_recording.stderr).contains("hint: "));
    })
    .await;
}

#[tokio::test]
async fn check_names_laws_and_lines_and_has_an_exit_code() {
    in_time(async {
        let folder = Folder::new();
        let file = eventful(&folder);
        let junit = folder.file("junit.xml");
        let (lines, code) = lines_of(&["check", &file, "--junit", &junit]).await;
        assert_eq!(code, 6);
        assert!(
            lines.iter().any(|line| line == "answered  line 8, #4"),
            "{lines:#?}"
        );
        assert!(
            std::fs::read_to_string(junit)
                .unwrap()
                .contains("<failure type=\"should\"")
        );
        let (lines, _) = lines_of(&["check", &file, "--json"]).await;
        let report: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(report["findings"][0]["lines"], serde_json::json!([8]));

        let (_, code) = lines_of(&["check", &file, "--allow", "answered"]).await;
        assert_eq!(code, 0);
        assert_eq!(
            bowline(&["check", &file, "--allow", "no-such-law"])
                .await
                .status
                .code(),
            Some(2)
        );
        let (laws, _) = lines_of(&["check", "--list"]).await;
        assert!(laws.iter().any(|line| line == "no-posted-cancel"));
    })
    .await;
}

#[tokio::test]
async fn diff_shows_paths_and_has_an_exit_code() {
    in_time(async {
        let folder = Folder::new();
        let one = write(&folder, "one.jsonl", &[&request(1, "add"), &result(1, "3")]);
        let other = write(
            &folder,
            "other.jsonl",
            &[&request(7, "add"), &result(7, "4"), &request(8, "sub")],
        );

        assert_eq!(lines_of(&["diff", &one, &one]).await.1, 0);
        let (lines, code) = lines_of(&["diff", &one, &other]).await;
        assert_eq!(code, 6);
        for text in [
            "~ #1 #1 tools/call add",
            "result.content[0].text",
            "- \"3\"",
            "+ \"4\"",
            "+ #2 tools/call sub",
        ] {
            assert!(
                lines.iter().any(|line| line.contains(text)),
                "{text}: {lines:#?}"
            );
        }
        let (lines, code) =
            lines_of(&["diff", &one, &other, "--ignore", "result..text", "--json"]).await;
        assert_eq!((lines.len(), code), (1, 6));
        assert_eq!(
            bowline(&["diff", &one, &other, "--ignore", "a["])
                .await
                .status
                .code(),
            Some(2)
        );
    })
    .await;
}

#[tokio::test]
async fn export_prints_har_and_opentelemetry() {
    in_time(async {
        let folder = Folder::new();
        let file = eventful(&folder);
        let json = |output: std::process::Output| -> Value {
            serde_json::from_slice(&output.stdout).unwrap()
        };

        let har = json(bowline(&["export", &file, "--har"]).await);
        assert_eq!(har["log"]["version"], "1.2");
        assert_eq!(har["log"]["entries"].as_array().unwrap().len(), 4);
        let otlp = json(bowline(&["export", &file, "--otlp"]).await);
        let spans = &otlp["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(spans.as_array().unwrap().len(), 4);
        assert_eq!(spans[1]["events"][0]["name"], "cancelled");
        let to = folder.file("out.har");
        assert!(
            bowline(&["export", &file, "--har", "--to", &to])
                .await
                .status
                .success()
        );
        assert!(std::fs::metadata(to).unwrap().len() > 100);
        assert_eq!(bowline(&["export", &file]).await.status.code(), Some(2));
    })
    .await;
}
