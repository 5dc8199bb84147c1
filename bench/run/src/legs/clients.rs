//! Clients: what one `tools/call` costs them, with the raw server at the other end for all.

use std::process::Command;

use crate::measure::{Goal, Row, Sample, Series, interleave};
use crate::options::Options;
use crate::program::{Program, Setting, Subject};

/// Over HTTP, many calls in flight and one.
pub(crate) fn http(options: &Options) -> Vec<Row> {
    let (_server, address) = Program::serve(Subject::Raw, Setting::LOAD);
    let url = format!("http://{address}/mcp");
    let to = ["--url", &url];
    vec![
        Row::cpu(
            "HTTP client, 64 in flight",
            Some(Goal::Ratio(2.0)),
            &run(options, &Subject::ALL, Setting::USUAL, &to, 64),
        ),
        Row::cpu(
            "HTTP client, 1 in flight",
            Some(Goal::Ratio(1.5)),
            &run(options, &Subject::ALL, Setting::USUAL, &to, 1),
        ),
    ]
}

/// To a child, many calls in flight and one.
pub(crate) fn stdio(options: &Options) -> Vec<Row> {
    let server = Subject::Raw.server();
    let program = server.get_program().to_string_lossy().into_owned();
    let to = ["--child", &program];
    vec![
        Row::cpu(
            "stdio client, 64 in flight",
            None,
            &run(options, &Subject::ALL, Setting::USUAL, &to, 64),
        ),
        Row::cpu(
            "stdio client, 1 in flight",
            None,
            &run(options, &Subject::ALL, Setting::USUAL, &to, 1),
        ),
    ]
}

/// Starts a client for each turn, which says itself what it cost.
pub(crate) fn run(
    options: &Options,
    subjects: &[Subject],
    setting: Setting<'_>,
    to: &[&str],
    in_flight: usize,
) -> Vec<Series> {
    let window = options.window().as_millis().to_string();
    let commands = subjects.iter().map(|subject| {
        let mut command = subject.client();
        command.args(setting.arguments).args(to).args([
            "--in-flight",
            &in_flight.to_string(),
            "--window-ms",
            &window,
        ]);
        (*subject, command)
    });
    let mut commands: Vec<(Subject, Command)> = commands.collect();
    interleave(options.rounds(), &mut commands, |command| {
        let line = Program::start(command, setting.core).line();
        let sample: Result<Sample, _> = serde_json::from_str(&line);
        sample.unwrap_or_else(|error| panic!("{command:?} said {line:?}: {error}"))
    })
}
