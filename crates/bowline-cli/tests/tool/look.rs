//! `ls`, `call`, `read`, `prompt`, `ping`, `watch` and `servers`, against the fixture.

use bowline::Client;
use serde_json::{Value, json};

use crate::support::{BOWLINE, HttpFixture, Program, TempDir, VERSIONS, in_time, run, run_with};

/// Runs a command against the fixture over stdio and over HTTP, in both eras.
async fn everywhere(words: &[&str], check: impl Fn(&str, crate::support::Ended)) {
    in_time(async {
        let fixture = HttpFixture::start().await;
        for version in VERSIONS {
            let options = ["--protocol-version", version];
            let (name, rest) = words.split_first().unwrap();
            let over_http = [&[*name], &[fixture.url.as_str()], rest, &options].concat();
            check(&format!("http {version}"), run(&over_http).await);
            let server = ["--", BOWLINE, "serve-demo"];
            let over_stdio = [&[*name], rest, &options, &server].concat();
            check(&format!("stdio {version}"), run(&over_stdio).await);
        }
    })
    .await;
}

#[tokio::test]
async fn the_guide_shows_what_ls_prints() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tool.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, shown) = guide
        .split_once("$ bowline ls -- bowline serve-demo\n")
        .unwrap();
    let (shown, _) = shown.split_once("```").unwrap();

    let ended = in_time(run(&["ls", "--", BOWLINE, "serve-demo"])).await;

    let mut printed = ended.stdout.lines();
    for line in shown.lines().filter(|line| *line != "  …") {
        assert!(printed.any(|it| it == line), "{line:?} in {}", ended.stdout);
    }
}

#[tokio::test]
async fn ls_shows_signatures_and_only_the_sections_that_the_server_has() {
    everywhere(&["ls"], |at, ended| {
        assert_eq!(ended.code, Some(0), "{at}: {ended:?}");
        for text in [
            "bowline-fixture",
            "Tools (13)",
            "add(a: integer, b: integer) -> {result: integer}",
            "touch(uri?: string = \"fixture://counter\")",
            "Adds two numbers.",
            "read-only",
            "seconds  how long to sleep",
            "Resources (2)",
            "fixture://static",
            "Resource templates (1)",
            "fixture://item/{id}",
            "Prompts (1)",
            "greet(name: string)",
        ] {
            assert!(
                ended.stdout.contains(text),
                "{at}: {text}: {}",
                ended.stdout
            );
        }
        assert!(
            !ended.stdout.contains('\u{1b}'),
            "{at}: escape codes without a terminal"
        );
        let widest = ended.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{at}: {}", ended.stdout);
    })
    .await;
}

#[tokio::test]
async fn ls_prints_json_for_programs() {
    everywhere(&["ls", "--json"], |at, ended| {
        let json = ended.json();
        assert_eq!(json["server"]["name"], "bowline-fixture", "{at}");
        let tools = json["tools"].as_array().unwrap();
        let add = tools.iter().find(|tool| tool["name"] == "add").unwrap();
        assert_eq!(
            add["signature"],
            "add(a: integer, b: integer) -> {result: integer}"
        );
        assert_eq!(add["inputSchema"]["type"], "object", "{at}");
        assert_eq!(json["prompts"][0]["name"], "greet", "{at}");
    })
    .await;
}

#[tokio::test]
async fn arguments_are_converted_by_the_schema_and_results_are_printed() {
    everywhere(&["call", "add", "a=1", "b:=2"], |at, ended| {
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "{\n  \"result\": 3\n}\n"),
            "{at}: {ended:?}"
        );
    })
    .await;
    everywhere(&["call", "echo", "text=5", "--json"], |at, ended| {
        assert_eq!(ended.json()["content"][0]["text"], "5", "{at}");
    })
    .await;
    everywhere(
        &["call", "progress", "--args", r#"{"n": 3}"#],
        |at, ended| {
            assert_eq!(
                (ended.code, ended.stdout.as_str()),
                (Some(0), "3 steps\n"),
                "{at}: {ended:?}"
            );
            assert_eq!(ended.stderr, "", "{at}: progress is for terminals");
        },
    )
    .await;
}

#[tokio::test]
async fn failures_have_their_exit_codes_and_say_what_to_do() {
    for (words, code, texts) in [
        (
            &["call", "fail", "message=broken"][..],
            5,
            &["broken", "the tool reported an error"][..],
        ),
        (&["call", "boom"], 4, &["boom, as asked"]),
        (&["call", "ad", "a=1"], 2, &["no tool `ad`", " add a=1"]),
        (
            &["call", "add", "a=1", "c=2"],
            2,
            &["no parameter `c`", "add(a: integer, b: integer)"],
        ),
        (
            &["call", "add", "a=one", "b=2"],
            2,
            &["`a`: expected integer, got `one`"],
        ),
        (
            &["call", "add", "a=1"],
            2,
            &["missing `b`", "add(a: integer, b: integer)"],
        ),
        (
            &["call", "slow", "seconds=600", "--timeout", "50ms"],
            7,
            &["timed out"],
        ),
        (&["read", "fixture://missing"], 4, &[]),
        (
            &["prompt", "greet"],
            2,
            &["missing `name`", "greet(name: string)"],
        ),
    ] {
        everywhere(words, |at, ended| {
            assert_eq!(ended.code, Some(code), "{at} {words:?}: {ended:?}");
            let printed = format!("{}{}", ended.stdout, ended.stderr);
            for text in texts {
                assert!(printed.contains(text), "{at} {words:?}: {text}: {printed}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_has_its_own_exit_code() {
    in_time(async {
        let refused = run(&["ls", "http://127.0.0.1:1/mcp"]).await;
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(
            refused
                .stderr
                .contains("failed to connect to http://127.0.0.1:1/mcp"),
            "{refused:?}"
        );
        let missing = run(&["ls", "--", "/no/such/program"]).await;
        assert_eq!(missing.code, Some(3), "{missing:?}");
        let none = run(&["ls"]).await;
        assert_eq!(none.code, Some(2), "{none:?}");
        assert!(none.stderr.contains("try: "), "{none:?}");
    })
    .await;
}

#[tokio::test]
async fn resources_and_prompts_are_printed() {
    everywhere(&["read", "fixture://static"], |at, ended| {
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "static"),
            "{at}: {ended:?}"
        );
    })
    .await;
    everywhere(&["prompt", "greet", "name=Ada"], |at, ended| {
        assert_eq!(
            ended.stdout, "Greets a person.\n[user]\nHello, Ada!\n",
            "{at}: {ended:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn forms_are_answered_by_options_and_never_wait_in_vain() {
    everywhere(&["call", "ask", "--answer", "name=Ada"], |at, ended| {
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "accepted:Ada\n"),
            "{at}: {ended:?}"
        );
    })
    .await;
    everywhere(&["call", "ask", "--refuse"], |at, ended| {
        assert_eq!(ended.stdout, "declined\n", "{at}: {ended:?}");
    })
    .await;
    everywhere(&["call", "ask"], |at, ended| {
        assert_eq!(ended.code, Some(2), "{at}: {ended:?}");
        assert!(
            ended.stderr.contains("What is your name?"),
            "{at}: {ended:?}"
        );
        assert!(ended.stderr.contains("--answer name=…"), "{at}: {ended:?}");
    })
    .await;
}

#[tokio::test]
async fn many_calls_are_measured() {
    everywhere(
        &[
            "call",
            "echo",
            "text=hi",
            "--repeat",
            "20",
            "--concurrency",
            "4",
            "--json",
        ],
        |at, ended| {
            let json = ended.json();
            assert_eq!(
                (&json["count"], &json["failures"]),
                (&json!(20), &json!(0)),
                "{at}"
            );
            assert!(
                json["p50Micros"].as_u64() <= json["maxMicros"].as_u64(),
                "{at}: {json}"
            );
        },
    )
    .await;
    everywhere(
        &["ping", "--count", "3", "--interval", "1ms", "--json"],
        |at, ended| {
            assert_eq!(ended.json()["count"], 3, "{at}: {ended:?}");
        },
    )
    .await;
}

#[tokio::test]
async fn watch_prints_updates_of_resources_until_it_is_interrupted() {
    in_time(async {
        let fixture = HttpFixture::start().await;
        for version in VERSIONS {
            let words = [
                "watch",
                &fixture.url,
                "--json",
                "--protocol-version",
                version,
            ];
            let mut watch = Program::start(&words);
            let first: Value = serde_json::from_str(&watch.line().await).unwrap();
            assert_eq!(first["event"], "watching", "{version}: {first}");
            let client = Client::connect(&fixture.url).await.unwrap();

            // The subscription may not be open yet: touch it until an update is printed.
            let touching = async {
                loop {
                    client.call_tool("touch", ()).await.unwrap();
                }
            };
            let line = tokio::select! {
                line = watch.line() => line,
                () = touching => unreachable!("it touches for ever"),
            };

            let event: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(event["event"], "resource", "{version}: {event}");
            assert_eq!(event["uri"], "fixture://counter", "{version}");
            watch.interrupt().await;
            let ended = watch.end().await;
            assert_eq!(ended.code, Some(0), "{version}: {ended:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn servers_of_hosts_are_listed_and_used_by_name() {
    in_time(async {
        let home = TempDir::new("home");
        let config = json!({"mcpServers": {
            "demo": {"command": BOWLINE, "args": ["serve-demo"], "env": {"API_KEY": "s3cret"}},
            "gone": {"command": "/no/such/program", "disabled": false},
        }});
        home.write(".cursor/mcp.json", &config.to_string());
        home.write(".codex/config.toml", "[mcp_servers.broken\n");
        home.write("work/.git/HEAD", "");
        let at_home = |command: &mut tokio::process::Command| {
            command.env("HOME", &home.0).env_remove("XDG_CONFIG_HOME");
            command
                .env_remove("CODEX_HOME")
                .current_dir(home.0.join("work"));
        };

        let listed = run_with(&["servers", "--json"], at_home).await;
        let text = run_with(&["servers"], at_home).await;
        let called = run_with(&["call", "cursor:demo", "add", "a=1", "b=2"], at_home).await;
        let checked = run_with(&["servers", "--check", "--yes", "--json"], at_home).await;
        let asked = run_with(&["servers", "--check"], at_home).await;
        let unknown = run_with(&["ls", "demmo"], at_home).await;

        assert_eq!(listed.code, Some(0), "{listed:?}");
        let json = listed.json();
        let names: Vec<_> = json["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["target"])
            .collect();
        assert_eq!(names, ["cursor:demo", "cursor:gone"], "{json}");
        assert_eq!(json["servers"][0]["env"], json!(["API_KEY"]));
        assert_eq!(json["problems"].as_array().unwrap().len(), 1, "{json}");
        for printed in [&listed, &text, &called, &checked] {
            assert!(!format!("{printed:?}").contains("s3cret"), "{printed:?}");
        }
        assert!(
            text.stdout.contains("Cursor  ~/.cursor/mcp.json"),
            "{text:?}"
        );
        assert!(text.stderr.contains("config.toml:1: "), "{text:?}");
        assert_eq!(called.code, Some(0), "{called:?}");
        assert_eq!(checked.code, Some(6), "{checked:?}");
        assert_eq!(
            checked.json()["servers"][0]["check"]["tools"],
            13,
            "{checked:?}"
        );
        assert_eq!(
            checked.json()["servers"][1]["check"]["ok"],
            false,
            "{checked:?}"
        );
        assert!(checked.stderr.contains("will run"), "{checked:?}");
        assert_eq!(
            asked.code,
            Some(2),
            "without a terminal nothing is started: {asked:?}"
        );
        assert!(
            unknown.stderr.contains("try: bowline ls cursor:demo"),
            "{unknown:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn completions_and_man_pages_are_printed() {
    in_time(async {
        for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
            let script = run(&["completions", shell]).await;
            assert_eq!(script.code, Some(0), "{shell}");
            assert!(script.stdout.contains("serve-demo"), "{shell}");
        }
        let man = run(&["man"]).await;
        assert!(
            man.stdout.starts_with(".ie") || man.stdout.contains(".TH"),
            "{man:?}"
        );
    })
    .await;
}
