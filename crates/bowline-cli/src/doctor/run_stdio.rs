//! The examination of a server that is started as a process.

use bowline::exchange::{Dialect, Dialects};
use serde_json::{Value, json};

use super::Settings;
use super::checks::era;
use super::checks::era::{EraFacts, Eras, Heard};
use super::checks::stdio::{ProcessFacts, cannot_start, exited_early, process};
use super::codes;
use super::examine::examine_server;
use super::probe::channel::{Channel as _, ChannelFailure};
use super::probe::stdio::StdioProcess;
use super::probe::{Link, Reply, Way};
use super::report::Report;
use crate::target::CommandTarget;

/// Examines the server.
pub(crate) async fn examine(target: &CommandTarget, settings: &Settings, report: &mut Report) {
    report.transport = "stdio";
    let program = target.program.to_string_lossy().into_owned();
    let mut main = match StdioProcess::start(target) {
        Ok(main) => main,
        Err(error) => {
            let elsewhere = super::programs::find_elsewhere(&program);
            let finding = cannot_start(&program, &error.to_string(), elsewhere.as_deref());
            report.findings.push(finding);
            report.unchecked("everything else", "the server could not be started");
            return;
        }
    };
    let mut facts = ProcessFacts::default();
    let Some(opening) = open(target, &mut main, settings, &mut facts, report).await else {
        judge_process(&facts, settings, report);
        return;
    };
    let eras = era::judge(&opening.facts);
    report.findings.extend(eras.findings.iter().cloned());
    report.fact("versions", eras.versions());
    if let (Some(dialect), Some(introduction)) = (opening.dialect(&eras), &opening.introduction) {
        let mut link = Link::new(Way::Stdio(&mut main, dialect));
        examine_server(&mut link, introduction, settings, report).await;
    } else {
        report.unchecked("everything else", "the server could not be opened");
    }
    collect(&main, &mut facts);
    facts.exits_at_end_of_input = Some(main.exits_at_end_of_input(settings.patience.exit).await);
    judge_process(&facts, settings, report);
}

/// How the server was opened.
struct Opening {
    facts: EraFacts,
    /// The result of the request that opened the main process.
    introduction: Option<Value>,
    is_modern: bool,
}

impl Opening {
    /// The version in which the main process is open.
    fn dialect(&self, eras: &Eras) -> Option<&'static Dialect> {
        if self.is_modern {
            return eras.modern;
        }
        let version = self.introduction.as_ref()?["protocolVersion"].as_str()?;
        Dialect::of(version).filter(|it| !it.is_modern())
    }
}

/// Sends `server/discover`, and `initialize` to the same process or to others. `None` if the process ended before it
/// answered anything, which is then reported.
async fn open(
    target: &CommandTarget,
    main: &mut StdioProcess,
    settings: &Settings,
    facts: &mut ProcessFacts,
    report: &mut Report,
) -> Option<Opening> {
    let patience = settings.patience;
    let asked = main
        .request(
            Dialect::LATEST,
            "server/discover",
            json!({}),
            patience.start,
        )
        .await;
    facts.first_message_after = main.first_message_after;
    let discover = heard(asked);
    let discovery = modern_discovery(&discover);
    if let Some(discovery) = discovery {
        let handshakes =
            handshakes_in_others(target, settings, facts, report, Dialects::legacy()).await;
        return Some(Opening {
            facts: EraFacts {
                discover,
                handshakes,
            },
            introduction: Some(discovery),
            is_modern: true,
        });
    }
    if let Heard::Exited(how) = &discover {
        let (how, stderr) = (how.clone(), main.stderr_tail());
        collect(main, facts);
        let restarted = StdioProcess::start(target).ok();
        if let Some(restarted) = restarted {
            *main = restarted;
        }
        let handshake = heard(
            main.initialize(Dialect::LATEST_LEGACY, patience.start)
                .await,
        );
        facts.first_message_after = main.first_message_after;
        if !matches!(handshake, Heard::Reply(_)) {
            report.findings.push(exited_early(&how, &stderr));
            report.unchecked("everything else", "the server ended");
            return None;
        }
        return Some(legacy_opening(target, settings, facts, report, discover, handshake).await);
    }
    let handshake = heard(
        main.initialize(Dialect::LATEST_LEGACY, patience.start)
            .await,
    );
    if let Heard::Exited(how) = &handshake {
        report.findings.push(exited_early(how, &main.stderr_tail()));
        report.unchecked("everything else", "the server ended");
        collect(main, facts);
        return None;
    }
    Some(legacy_opening(target, settings, facts, report, discover, handshake).await)
}

async fn legacy_opening(
    target: &CommandTarget,
    settings: &Settings,
    facts: &mut ProcessFacts,
    report: &mut Report,
    discover: Heard,
    handshake: Heard,
) -> Opening {
    let introduction = match &handshake {
        Heard::Reply(Reply::Result(result)) => Some(result.clone()),
        _ => None,
    };
    let mut handshakes = vec![(Dialect::LATEST_LEGACY, handshake)];
    if introduction.is_some() {
        let others =
            Dialects::only(|it| !it.is_modern() && it.version != Dialect::LATEST_LEGACY.version);
        handshakes.extend(handshakes_in_others(target, settings, facts, report, others).await);
    }
    Opening {
        facts: EraFacts {
            discover,
            handshakes,
        },
        introduction,
        is_modern: false,
    }
}

/// Sends `initialize` in each version, each to a process of its own, because a process is initialized once.
async fn handshakes_in_others(
    target: &CommandTarget,
    settings: &Settings,
    facts: &mut ProcessFacts,
    report: &mut Report,
    versions: Dialects,
) -> Vec<(&'static Dialect, Heard)> {
    let is_quick = facts
        .first_message_after
        .is_some_and(|it| it < settings.slow_start);
    if !is_quick {
        let why = "the server starts slowly, and each revision needs a process of its own";
        report.unchecked("other revisions", why);
        return Vec::new();
    }
    let mut handshakes = Vec::new();
    for dialect in versions.iter() {
        let Ok(mut other) = StdioProcess::start(target) else {
            continue;
        };
        let asked = other.initialize(dialect, settings.patience.start).await;
        handshakes.push((dialect, heard(asked)));
        collect(&other, facts);
    }
    handshakes
}

/// Returns a discovery that lists a modern version.
fn modern_discovery(heard: &Heard) -> Option<Value> {
    let facts = EraFacts {
        discover: heard.clone(),
        handshakes: Vec::new(),
    };
    let eras = era::judge(&facts);
    eras.modern.and(eras.discovery)
}

fn heard(asked: Result<Reply, ChannelFailure>) -> Heard {
    match asked {
        Ok(reply) => Heard::Reply(reply),
        Err(ChannelFailure::TimedOut(after)) => Heard::TimedOut(after),
        Err(ChannelFailure::Ended(how)) => Heard::Exited(how),
    }
}

/// Keeps what the process printed that printed the most: each process is a start of the same server.
fn collect(process: &StdioProcess, facts: &mut ProcessFacts) {
    if process.noise_count > facts.noise_count {
        facts.noise_count = process.noise_count;
        facts.noise = process.noise.clone();
    }
}

fn judge_process(facts: &ProcessFacts, settings: &Settings, report: &mut Report) {
    if let Some(after) = facts.first_message_after {
        report.fact(
            "start",
            format!("{} ms to the first answer", after.as_millis()),
        );
    }
    let findings = process(facts, settings.slow_start, settings.patience.exit);
    // A server that waits for a probe that it ignores is not slow to start.
    let ignores_probe = report
        .findings
        .iter()
        .any(|it| it.code == &codes::PROBE_IGNORED);
    let is_slow = |code: &codes::Code| code == &codes::SLOW_START;
    report.findings.extend(
        findings
            .into_iter()
            .filter(|it| !(ignores_probe && is_slow(it.code))),
    );
}
