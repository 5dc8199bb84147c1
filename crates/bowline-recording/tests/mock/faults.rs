//! Delays, errors and lost connections.

use std::time::Duration;

use bowline::wire::Lines;
use bowline::{Client, Error, ErrorCode, RpcError};
use bowline_recording::{DropAfter, InjectedFailure, Latency, Mock, Recording};
use serde_json::json;
use tokio::time::Instant;

use crate::recorded::{ERAS, Era, PAIRS, Recorded, call, connect, content};

fn calls(era: Era) -> Recording {
    let mut recorded = Recorded::new(era);
    for number in 0..20 {
        recorded.call("get", json!({"number": number}), &number.to_string());
    }
    recorded.recording()
}

#[tokio::test(start_paused = true)]
async fn answers_take_as_long_as_they_are_told_to() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let mut params = call("count", json!({}));
        params["_meta"]["progressToken"] = json!(1);
        let id = recorded.request("tools/call", params);
        for progress in 1..=3 {
            recorded.server(json!({
                "jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": 1, "progress": progress},
            }));
        }
        recorded.answer(id, content("counted"));
        let recording = recorded.recording();
        let five = Duration::from_secs(5);

        for (latency, expected) in [
            (Latency::None, Duration::ZERO),
            (Latency::Fixed(five), five),
            // Three notifications and an answer, each after a second.
            (Latency::Recorded, Duration::from_secs(4)),
        ] {
            let mock = Mock::builder(&recording).latency(latency).build();
            let client = connect(&mock, era).await;
            let begun = Instant::now();
            client.call_tool("count", ()).await.unwrap();
            assert_eq!(
                begun.elapsed(),
                expected,
                "{latency:?} {recorded_era:?} {era:?}"
            );
        }
    }
}

/// Returns which of twenty calls fail.
async fn failed_calls(recording: &Recording, seed: u64, era: Era) -> Vec<usize> {
    let error = RpcError::new(ErrorCode(-32000), "out of order");
    let failure = InjectedFailure::rate(0.5).method("tools/call").error(error);
    let mock = Mock::builder(recording).fail(failure).seed(seed).build();
    let client = connect(&mock, era).await;
    let mut failed = Vec::new();
    for number in 0..20 {
        match client.call_tool("get", json!({"number": number})).await {
            Ok(got) => assert_eq!(got.text(), number.to_string()),
            Err(Error::Rpc(error)) => {
                assert_eq!(
                    (error.code.0, error.message.as_str()),
                    (-32000, "out of order")
                );
                failed.push(number);
            }
            Err(error) => panic!("{error}"),
        }
    }
    failed
}

#[tokio::test]
async fn the_seed_decides_which_requests_fail() {
    let recording = calls(Era::Modern);

    let first = failed_calls(&recording, 1, Era::Modern).await;

    assert_eq!(first, failed_calls(&recording, 1, Era::Legacy).await);
    assert_ne!(first, failed_calls(&recording, 2, Era::Modern).await);
    assert!((3..17).contains(&first.len()), "{first:?}");
}

/// Connects to a mock over bytes.
fn over_bytes(mock: Mock, era: Era) -> bowline::client::ClientBuilder {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(far);
    tokio::spawn(async move { mock.serve(read, write).await });
    let (read, write) = tokio::io::split(near);
    Client::from_wire(Lines::new(read, write)).protocol_version(era.version())
}

#[tokio::test]
async fn a_connection_is_dropped_in_place_of_an_answer() {
    for era in ERAS {
        let recording = calls(Era::Legacy);
        let handshake = match era {
            Era::Modern => 0,
            Era::Legacy => 1,
        };
        let drop_after = DropAfter::Answers(handshake + 3);
        let mock = Mock::builder(&recording).drop_after(drop_after).build();
        assert!(mock.drops_connections());

        let client = over_bytes(mock, era).await.unwrap();
        for number in 0..3 {
            let got = client
                .call_tool("get", json!({"number": number}))
                .await
                .unwrap();
            assert_eq!(got.text(), number.to_string());
        }
        let lost = client
            .call_tool("get", json!({"number": 3}))
            .await
            .unwrap_err();

        assert!(lost.is_disconnected(), "{lost}");
    }
}

#[tokio::test]
async fn a_connection_is_cut_after_some_bytes() {
    for era in ERAS {
        let recording = calls(Era::Legacy);
        let bytes = DropAfter::Bytes(1500);
        let mock = Mock::builder(&recording).drop_after(bytes).build();

        let client = over_bytes(mock, era).await.unwrap();
        let mut answered = 0;
        let lost = loop {
            match client.call_tool("get", json!({"number": answered})).await {
                Ok(_) => answered += 1,
                Err(error) => break error,
            }
        };

        assert!(lost.is_disconnected(), "{lost}");
        assert!((1..20).contains(&answered), "{answered}");
    }
}
