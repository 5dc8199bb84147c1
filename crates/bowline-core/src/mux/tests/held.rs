//! Calls that are held up on our side.

use super::*;

#[test]
fn the_time_in_which_a_call_is_held_does_not_count() {
    let mut pair = Pair::new();
    let second = Duration::from_secs(1);
    let limits = |idle, total| CallOptions {
        idle_timeout: Some(idle * second),
        total_timeout: Some(total * second),
        ..CallOptions::default()
    };
    let held = pair.call_with("a", limits(2, 3));
    let other = pair.call_with("b", limits(2, 10));
    let id = RequestId::Number(1);
    pair.deliver();
    pair.advance(second);

    pair.client.hold(pair.now, &id);
    pair.client.pause_idle();
    pair.client.resume_idle(pair.now);
    pair.advance(50 * second);

    let idle = Err(Failure::Timeout(Overdue::Idle(2 * second)));
    assert_eq!(settled(pair.client.poll_event()), (other, idle));
    assert_eq!(pair.client.poll_event(), None);
    pair.client.release(pair.now, &id);
    pair.advance(second);
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second);
    let total = Err(Failure::Timeout(Overdue::Total(3 * second)));
    assert_eq!(settled(pair.client.poll_event()), (held, total));
    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn a_call_that_has_not_left_is_not_held_by_news_of_a_predecessor_with_its_id() {
    let mut pair = Pair::new();
    let second = Duration::from_secs(1);
    let limited = CallOptions {
        total_timeout: Some(second),
        ..with_id(7)
    };
    let call = pair.call_with("a", limited);

    pair.client.hold(pair.now, &RequestId::Number(7));
    pair.advance(second);

    let total = Err(Failure::Timeout(Overdue::Total(second)));
    assert_eq!(settled(pair.client.poll_event()), (call, total));
}
