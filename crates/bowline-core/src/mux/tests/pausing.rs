//! Tests of calls whose deadlines are paused, or that cannot be answered in time.

use super::*;

#[test]
fn the_time_while_deadlines_are_paused_does_not_count() {
    let mut pair = MuxPair::new();
    let second = Duration::from_secs(1);
    let limits = |idle, total| CallOptions {
        idle_timeout: Some(idle * second),
        timeout: Some(total * second),
        ..CallOptions::default()
    };
    let paused = pair.call_with("a", limits(2, 3));
    let other = pair.call_with("b", limits(2, 10));
    let id = RequestId::Number(1);
    pair.deliver();
    pair.advance(second);

    pair.client.pause_deadlines(pair.now, &id);
    pair.client.pause_all_deadlines(pair.now);
    pair.client.resume_all_deadlines(pair.now);
    pair.advance(50 * second);

    let idle = Err(CallFailure::Timeout(CallTimeout::Idle(2 * second)));
    assert_eq!(settled(pair.client.poll_event()), (other, idle));
    assert_eq!(pair.client.poll_event(), None);
    pair.client.resume_deadlines(pair.now, &id);
    pair.advance(second);
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second);
    let total = Err(CallFailure::Timeout(CallTimeout::Total(3 * second)));
    assert_eq!(settled(pair.client.poll_event()), (paused, total));
    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn overlapping_pauses_count_once() {
    let mut pair = MuxPair::new();
    let second = Duration::from_secs(1);
    let limited = CallOptions {
        timeout: Some(3 * second),
        ..CallOptions::default()
    };
    let call = pair.call_with("a", limited);
    let id = RequestId::Number(1);
    pair.deliver();
    pair.advance(second);

    pair.client.pause_deadlines(pair.now, &id);
    pair.advance(2 * second);
    pair.client.pause_all_deadlines(pair.now);
    pair.advance(2 * second);
    pair.client.resume_deadlines(pair.now, &id);
    pair.advance(2 * second);
    pair.client.resume_all_deadlines(pair.now);
    pair.advance(second);
    pair.client.pause_all_deadlines(pair.now);
    pair.advance(2 * second);
    pair.client.pause_deadlines(pair.now, &id);
    pair.advance(2 * second);
    pair.client.resume_all_deadlines(pair.now);
    pair.advance(2 * second);
    pair.client.resume_deadlines(pair.now, &id);
    pair.advance(second / 2);
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second / 2);

    let total = Err(CallFailure::Timeout(CallTimeout::Total(3 * second)));
    assert_eq!(settled(pair.client.poll_event()), (call, total));
}

#[test]
fn an_unsent_call_is_not_paused_by_an_event_of_an_earlier_call_with_its_id() {
    let mut pair = MuxPair::new();
    let second = Duration::from_secs(1);
    let limited = CallOptions {
        timeout: Some(second),
        ..with_id(7)
    };
    let call = pair.call_with("a", limited);

    pair.client.pause_deadlines(pair.now, &RequestId::Number(7));
    pair.advance(second);

    let total = Err(CallFailure::Timeout(CallTimeout::Total(second)));
    assert_eq!(settled(pair.client.poll_event()), (call, total));
}

#[test]
fn a_call_whose_deadline_is_before_the_next_possible_response_fails_at_once() {
    let seconds = Duration::from_secs;
    let both = CallOptions {
        idle_timeout: Some(seconds(60)),
        timeout: Some(seconds(90)),
        ..CallOptions::default()
    };
    for (wait, fails_by) in [
        (Some(59), None),
        (Some(60), None),
        (Some(61), Some(CallTimeout::Idle(seconds(60)))),
        (None, Some(CallTimeout::Idle(seconds(60)))),
    ] {
        let mut pair = MuxPair::new();
        let call = pair.call_with("tools/call", both.clone());
        pair.deliver();
        let id = pair.client.request_id(call).unwrap().clone();

        let until = wait.map(|wait| pair.now + seconds(wait));
        pair.client.handle_wait(until, &id);

        match fails_by {
            None => assert_eq!(pair.client.poll_event(), None),
            Some(timeout) => {
                // The cancel is already queued.
                assert!(text(pair.client.poll_transmit()).contains("notifications/cancelled"));
                let failure = Err(CallFailure::Timeout(timeout));
                assert_eq!(settled(pair.client.poll_event()), (call, failure));
            }
        }
    }
}

#[test]
fn a_call_without_deadlines_waits_as_long_as_the_server_requires() {
    let mut pair = MuxPair::new();
    let call = pair.call("tools/call");
    pair.deliver();
    let id = pair.client.request_id(call).unwrap().clone();

    pair.client.handle_wait(None, &id);

    assert_eq!(pair.client.poll_event(), None);
}
