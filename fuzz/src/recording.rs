//! The property of recordings.

use bowline_recording::{
    DiffOptions, Event, EventKind, Mock, Recording, RecordingWriter, Redactor, Replay, Timeline,
    check, diff, to_har, to_otlp,
};
use bowline_types::Json;

/// Reads the input as a recording, with and without a header, and checks that nothing which reads it panics, that it is
/// read again as it is written, that it does not differ from itself, and that redacting it keeps its messages JSON.
pub fn recording(input: &[u8]) {
    check_recording(input);
    for transport in ["stdio", "http"] {
        let header = format!(
            "{{\"format\":\"bowline-recording\",\"version\":1,\"started\":\"2026-07-28T12:00:00Z\",\"transport\":\"{transport}\"}}\n"
        );
        check_recording(&[header.as_bytes(), input].concat());
    }
}

fn check_recording(input: &[u8]) {
    let Ok(recording) = Recording::parse(input) else {
        return;
    };
    let written = write(&recording);
    let again = Recording::parse(&written).expect("a written recording is read");
    assert_eq!(write(&again), written);
    assert_eq!(again.events.len(), recording.events.len());
    assert!(again.problems.is_empty());

    let timeline = Timeline::of(&recording);
    for exchange in timeline.exchanges() {
        let legs = timeline.legs(exchange.number);
        assert!(legs.iter().any(|leg| leg.number == exchange.number));
    }
    let mut live = Timeline::live();
    for event in &recording.events {
        live.observe(event);
    }
    let report = check(&recording);
    let _ = report.to_junit("recording");
    let found = diff(&recording, &recording, &DiffOptions::new());
    assert!(found.changes.is_empty(), "{found:?}");
    let _ = (to_har(&recording), to_otlp(&recording));
    assert_eq!(
        Mock::new(&recording).requests(),
        Replay::new(&recording).requests()
    );
    check_redaction(&recording.events);
}

fn write(recording: &Recording) -> Vec<u8> {
    let mut writer =
        RecordingWriter::new(Vec::new(), &recording.header).expect("memory is written");
    writer
        .write_all(&recording.events)
        .expect("memory is written");
    writer.into_inner()
}

fn check_redaction(events: &[Event]) {
    let mut redactor = Redactor::new();
    for event in events {
        let mut once = event.clone();
        redactor.event(&mut once);
        if let EventKind::Message { message, .. } = &once.kind {
            let bytes = message.clone().into_bytes();
            assert!(Json::parse(bytes).is_ok(), "{message}");
        }
        let mut twice = once.clone();
        redactor.event(&mut twice);
        assert_eq!(once, twice);
    }
}
