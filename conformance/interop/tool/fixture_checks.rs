//! The checks of a server that provides the fixture.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::Program;
use crate::recorded::Recorded;
use crate::target::{LIMIT, Target, Tool, Words};
use crate::{Outcome, Report, Result};

/// Runs every check.
pub(crate) fn run(tool: &Tool, report: &mut Report) {
    report.add("bowline ls", ls(tool, report));
    report.add("bowline call", call(tool));
    report.add("bowline call and Ctrl-C", interrupt(tool));
    report.add("bowline watch", watch(tool));
    // One recording for both.
    match Recorded::call(tool, &TIMEOUT, &SLOW, TIMED_OUT) {
        Ok(recorded) => {
            report.add("bowline tap", tap(tool, &recorded));
            report.add("bowline check", recorded.check(tool));
        }
        Err(error) => {
            report.add("bowline tap", Err(error.clone()));
            report.add("bowline check", Err(error));
        }
    }
    report.add("bowline doctor", doctor(tool));
}

/// The tools are listed with their schemas, and as signatures.
fn ls(tool: &Tool, report: &Report) -> Result<Outcome> {
    let add = list(tool, "add", report)?;
    let schema = &add["inputSchema"];
    for name in ["a", "b"] {
        ensure(schema["properties"][name]["type"] == "integer", || {
            format!("`{name}` is not an integer in {schema}")
        })?;
    }
    find_signature(tool, "add(a: integer, b: integer)")
}

/// Reports the version, and returns the definition of this tool.
pub(crate) fn list(tool: &Tool, name: &str, report: &Report) -> Result<Value> {
    let listed = tool.run("ls", &["--json"], &[])?;
    let json = listed.expect(0)?.json()?;
    report.version(json["protocolVersion"].as_str().unwrap_or_default());
    let mut tools = json["tools"].as_array().into_iter().flatten();
    let found = tools.find(|tool| tool["name"] == name).cloned();
    found.ok_or_else(|| format!("no `{name}` in {}", listed.describe()))
}

/// Fails if `bowline ls` does not print this signature.
pub(crate) fn find_signature(tool: &Tool, signature: &str) -> Result<Outcome> {
    let text = tool.run("ls", &["--short"], &[])?;
    ensure(text.expect(0)?.stdout.contains(signature), || {
        format!("no `{signature}` in {}", text.describe())
    })?;
    Ok(Outcome::Ok)
}

/// A result, both kinds of errors, an unknown tool, and a question.
fn call(tool: &Tool) -> Result<Outcome> {
    let call = |arguments: &[&str]| tool.run("call", &[], arguments);
    let sum = call(&["add", "a=2", "b=40"])?;
    ensure(sum.expect(0)?.stdout.contains("42"), || sum.describe())?;
    let failed = call(&["fail", "message=broken"])?;
    ensure(failed.expect(5)?.stdout.contains("broken"), || {
        failed.describe()
    })?;
    let boom = call(&["boom"])?;
    let is_shown = ["boom", "-32000", "fixture"];
    let is_shown = is_shown.iter().all(|text| boom.stderr.contains(text));
    boom.expect(4)?;
    ensure(is_shown, || boom.describe())?;
    let unknown = call(&["ad", "a=2"])?;
    let is_named = ["try: bowline call ", " add a=2"];
    let is_named = is_named.iter().all(|text| unknown.stderr.contains(text));
    unknown.expect(2)?;
    ensure(is_named, || unknown.describe())?;
    let asked = tool.run("call", &["--answer", "name=Ada"], &["ask"])?;
    ensure(asked.expect(0)?.stdout.contains("accepted:Ada"), || {
        asked.describe()
    })?;
    Ok(Outcome::Ok)
}

/// Ctrl-C while the handler runs: the command reports the cancel, and the handler stops.
fn interrupt(tool: &Tool) -> Result<Outcome> {
    let version = tool.fixed_version().unwrap_or_default();
    let (running, how) = match tool.target() {
        Target::Url(_) => {
            tool.run("call", &[], &["reset"])?.expect(0)?;
            let running = tool.start("call", &[], &SLOW)?;
            wait_for_stats(tool, |stats| stats["active"] == 1)?;
            let how = match tool.is_modern(version) {
                true => "closed the response",
                false => "posted notifications/cancelled",
            };
            (running, how)
        }
        // Only the tap sees when the call has been sent: each command starts a server of its own.
        Target::Command(command) => {
            let tapped = tool.tapped(&["--json"], command);
            let words = Words {
                command: "call",
                options: &["-v"],
                arguments: &SLOW,
            };
            let running = tool.start_at(words, &tapped)?;
            running.stderr_line("tools/call")?;
            (running, "sent notifications/cancelled")
        }
    };
    running.interrupt()?;
    let ended = running.end()?;
    ensure(ended.expect(130)?.stderr.contains(how), || ended.describe())?;
    if tool.is_http() {
        wait_for_stats(tool, |stats| {
            stats["active"] == 0 && stats["cancelled"] == 1
        })?;
    }
    Ok(Outcome::Ok)
}

/// Calls `stats` until it meets a condition.
fn wait_for_stats(tool: &Tool, condition: impl Fn(&Value) -> bool) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let called = tool.run("call", &["--json"], &["stats"])?;
        let stats = called.expect(0)?.json()?["structuredContent"].clone();
        if condition(&stats) {
            return Ok(());
        }
        ensure(Instant::now() < deadline, || {
            format!("the handler of `slow` did not get there: {stats}")
        })?;
    }
}

/// A change is printed. Over stdio each command has a server of its own, so that nothing changes.
fn watch(tool: &Tool) -> Result<Outcome> {
    let watch = start_watch(tool, &["fixture://counter"])?;
    if tool.is_http() {
        let deadline = Instant::now() + LIMIT;
        // Over legacy HTTP, the stream of notifications may open after the subscription was acknowledged.
        while !has_update(&watch)? {
            ensure(Instant::now() < deadline, || {
                "no update is printed".to_owned()
            })?;
            tool.run("call", &[], &["touch"])?.expect(0)?;
        }
    }
    end_watch(watch)?;
    Ok(Outcome::Ok)
}

/// Starts `watch`, and waits until it is subscribed.
pub(crate) fn start_watch(tool: &Tool, uris: &[&str]) -> Result<Program> {
    let watch = tool.start("watch", &["--json"], uris)?;
    let first = watch.line()?;
    ensure(first.contains(r#""event":"watching""#), || {
        format!("expected `watching`, got `{first}`")
    })?;
    Ok(watch)
}

/// Interrupts `watch`, which then ends with success.
pub(crate) fn end_watch(watch: Program) -> Result<()> {
    watch.interrupt()?;
    watch.end()?.expect(0).map(|_| ())
}

/// Returns whether an update of the counter is printed soon.
fn has_update(watch: &Program) -> Result<bool> {
    while let Some(line) = watch.line_within(UPDATE_TIME)? {
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if event["event"] == "resource" && event["uri"] == "fixture://counter" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A call that times out is recorded with its cancel, in the form of the era and the transport.
fn tap(tool: &Tool, recorded: &Recorded) -> Result<Outcome> {
    let exchange = recorded.exchange(tool, "slow")?;
    let version = exchange["version"].as_str().unwrap_or_default();
    let form = match (tool.is_http(), tool.is_modern(version)) {
        (false, _) => "frame",
        (true, true) => "closed stream",
        (true, false) => "posted frame",
    };
    let cancel = &exchange["cancel"];
    let is_cancelled = exchange["state"] == "cancelled"
        && cancel["by"] == "client"
        && cancel["form"] == form
        && tool.fixed_version().is_none_or(|fixed| fixed == version);
    ensure(is_cancelled, || {
        format!("expected a cancel by {form}, got {exchange}")
    })?;
    if tool.is_http() {
        wait_for_stats(tool, |stats| stats["active"] == 0)?;
    }
    Ok(Outcome::Ok)
}

/// The doctor finds no error, and a tool that really stops.
fn doctor(tool: &Tool) -> Result<Outcome> {
    if tool.fixed_version().is_some_and(|it| tool.is_modern(it)) {
        return Ok(Outcome::Skipped(
            "it examines all versions at once, and does so in the mode `legacy`",
        ));
    }
    let arguments = [
        "--cancel-tool",
        "slow",
        "--cancel-args",
        r#"{"seconds": 600}"#,
    ];
    examine(tool, &arguments)
}

/// Runs the doctor, which must find no error and know the version of the mode.
pub(crate) fn examine(tool: &Tool, options: &[&str]) -> Result<Outcome> {
    // Of a server that starts slowly the doctor does not examine every version; on a busy machine all of them do.
    let patient = ["--json", "--max-time", "270s", "--slow-start", "60s"];
    let patient_waits = ["--timeout", "60s", "--stream-wait", "60s"];
    let options = [&patient[..], &patient_waits, options].concat();
    let examined = tool.run_without_version("doctor", &options)?;
    let report = examined.json()?;
    let findings = report["findings"].as_array().into_iter().flatten();
    let errors: Vec<String> = findings
        .filter(|it| it["severity"] == "error")
        .map(|it| format!("{}: {}", it["code"], it["what"]))
        .collect();
    ensure(errors.is_empty(), || {
        format!("the doctor finds {}", errors.join("; "))
    })?;
    examined.expect(0)?;
    let mut facts = report["facts"].as_array().into_iter().flatten();
    let versions = facts.find(|it| it["name"] == "versions");
    if versions.is_none() && report["findings"].to_string().contains("HTTP+SSE") {
        return Ok(Outcome::Skipped(
            "the doctor recognizes HTTP+SSE, and does not speak it",
        ));
    }
    let version = tool.fixed_version().unwrap_or("20");
    let is_known = versions.is_some_and(|it| it["value"].to_string().contains(version));
    ensure(is_known, || {
        format!(
            "expected the version {version}, got {}",
            examined.describe()
        )
    })?;
    let unchecked = report["unchecked"].to_string();
    ensure(!unchecked.contains("the rest"), || {
        format!("the doctor did not end in time: {unchecked}")
    })?;
    Ok(Outcome::Ok)
}

pub(crate) fn ensure(is_true: bool, error: impl FnOnce() -> String) -> Result<()> {
    match is_true {
        true => Ok(()),
        false => Err(error()),
    }
}

/// A call that does not end by itself.
const SLOW: [&str; 2] = ["slow", "seconds=600"];
const TIMEOUT: [&str; 2] = ["--timeout", "500ms"];
/// The exit code of a call that timed out.
const TIMED_OUT: i32 = 7;

/// How long an update may take before the resource is changed again.
const UPDATE_TIME: Duration = Duration::from_millis(500);
