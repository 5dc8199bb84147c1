//! The cost of one `tools/call` in clients, all connected to the raw server.

use std::process::Command;

use crate::measure::{Goal, Row, Sample, Series, interleave};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

/// Over HTTP, with 64 calls in flight and with one.
pub(crate) fn http(options: &Options) -> Vec<Row> {
    let (_server, address) = Program::serve(Subject::Raw, ProcessSetting::LOAD);
    let url = format!("http://{address}/mcp");
    let to = ["--url", &url];
    vec![
        Row::cpu(
            "HTTP client, 64 in flight",
            Some(Goal::Ratio(2.0)),
            &run(options, &Subject::ALL, ProcessSetting::USUAL, &to, 64),
        ),
        Row::cpu(
            "HTTP client, 1 in flight",
            Some(Goal::Ratio(1.5)),
            &run(options, &Subject::ALL, ProcessSetting::USUAL, &to, 1),
        ),
    ]
}

/// To a child, with 64 calls in flight and with one.
pub(crate) fn stdio(options: &Options) -> Vec<Row> {
    let server = Subject::Raw.server();
    let program = server.get_program().to_string_lossy().into_owned();
    let to = ["--child", &program];
    vec![
        Row::cpu(
            "stdio client, 64 in flight",
            None,
            &run(options, &Subject::ALL, ProcessSetting::USUAL, &to, 64),
        ),
        Row::cpu(
            "stdio client, 1 in flight",
            None,
            &run(options, &Subject::ALL, ProcessSetting::USUAL, &to, 1),
        ),
    ]
}

/// Starts a client for each turn, which prints its own measurements.
pub(crate) fn run(
    options: &Options,
    subjects: &[Subject],
    setting: ProcessSetting<'_>,
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
        sample.unwrap_or_else(|error| panic!("{command:?} printed {line:?}: {error}"))
    })
}
