//! The laws of [`Marks`](crate::cluster::Marks).

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{ClusterFixture, started, unique, until};
use crate::cluster::{MAX_MARK_KEY_BYTES, MAX_MARK_VALUE_BYTES, MarkError};

/// Of many replicas that set an absent mark, one gets `None` and the others its value.
pub async fn a_mark_is_set_by_exactly_one_replica(fixture: &dyn ClusterFixture) {
    let replicas = started::<3>(fixture).await;
    let key = unique("one");
    let mut setting = JoinSet::new();
    for number in 0..24_u8 {
        let (marks, key) = (replicas[usize::from(number) % 3].marks.clone(), key.clone());
        setting.spawn(async move {
            let before = marks.set_if_absent(key.as_bytes(), &[number], MINUTE).await;
            (number, before.unwrap())
        });
    }

    let outcomes = setting.join_all().await;

    let first: Vec<u8> = outcomes
        .iter()
        .filter_map(|(number, before)| before.is_none().then_some(*number))
        .collect();
    assert_eq!(first.len(), 1, "{outcomes:?}");
    for (number, before) in outcomes {
        assert!(number == first[0] || before.as_deref() == Some(&first[..]));
    }
}

/// Setting a mark that exists changes neither its value nor its lifetime.
pub async fn an_existing_mark_keeps_its_value_and_lifetime(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let key = unique("keep");
    let key = key.as_bytes();
    first.marks.set(key, b"1", SHORT).await.unwrap();

    let before = second.marks.set_if_absent(key, b"2", MINUTE).await.unwrap();

    assert_eq!(before.as_deref(), Some(&b"1"[..]));
    assert_eq!(first.marks.read(key).await.unwrap().unwrap(), "1");
    until("the mark expires", || async {
        first.marks.read(key).await.unwrap().is_none()
    })
    .await;
}

/// A mark is absent when its lifetime is over, and can be set again.
pub async fn a_mark_expires(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let (short, long) = (unique("short"), unique("long"));
    first.marks.set(long.as_bytes(), b"", MINUTE).await.unwrap();
    let set = first.marks.set_if_absent(short.as_bytes(), b"1", SHORT);
    assert_eq!(set.await.unwrap(), None);

    until("the mark expires", || async {
        second.marks.read(short.as_bytes()).await.unwrap().is_none()
    })
    .await;

    let again = second.marks.set_if_absent(short.as_bytes(), b"2", MINUTE);
    assert_eq!(again.await.unwrap(), None);
    let long = second.marks.read(long.as_bytes()).await.unwrap();
    assert_eq!(long, Some(Bytes::new()));
}

/// What holds for an absent mark holds for an expired one.
pub async fn an_expired_mark_is_neither_renewed_nor_replaced_nor_removed(
    fixture: &dyn ClusterFixture,
) {
    let [replica] = &started(fixture).await;
    let key = unique("expired");
    let (key, marks) = (key.as_bytes(), &replica.marks);
    marks.set(key, b"1", SHORT).await.unwrap();
    until("the mark expires", || async {
        marks.read(key).await.unwrap().is_none()
    })
    .await;

    assert!(!marks.renew(key, b"1", MINUTE).await.unwrap());
    assert!(!marks.replace(key, b"1", b"2", MINUTE).await.unwrap());
    assert!(!marks.remove(key, b"1").await.unwrap());
    assert_eq!(marks.read(key).await.unwrap(), None);
}

/// A renewed mark keeps its value for the new lifetime.
pub async fn a_renewed_mark_outlives_its_first_lifetime(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let (renewed, other) = (unique("renewed"), unique("other"));
    let (renewed, other) = (renewed.as_bytes(), other.as_bytes());
    first.marks.set(renewed, b"1", SHORT).await.unwrap();

    assert!(!second.marks.renew(renewed, b"2", MINUTE).await.unwrap());
    assert!(second.marks.renew(renewed, b"1", MINUTE).await.unwrap());

    // Set later and as short-lived as the first was: when it has expired, the first one would have.
    first.marks.set(other, b"", SHORT).await.unwrap();
    until("the mark expires", || async {
        first.marks.read(other).await.unwrap().is_none()
    })
    .await;
    assert_eq!(first.marks.read(renewed).await.unwrap().unwrap(), "1");
}

/// `replace` compares the value, and replaces neither another nor an absent one.
pub async fn a_mark_is_replaced_only_if_it_has_the_expected_value(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let key = unique("replace");
    let key = key.as_bytes();

    let absent = first.marks.replace(key, b"", b"1", MINUTE).await.unwrap();
    assert_eq!(first.marks.read(key).await.unwrap(), None);
    first.marks.set(key, b"1", MINUTE).await.unwrap();
    let other = second.marks.replace(key, b"2", b"3", MINUTE).await.unwrap();
    assert_eq!(first.marks.read(key).await.unwrap().unwrap(), "1");
    let same = second.marks.replace(key, b"1", b"2", MINUTE).await.unwrap();

    assert_eq!([absent, other, same], [false, false, true]);
    assert_eq!(first.marks.read(key).await.unwrap().unwrap(), "2");
}

/// A value is replaced once: the basis of read, change and replace.
pub async fn of_many_replacements_of_one_value_one_wins(fixture: &dyn ClusterFixture) {
    let replicas = started::<2>(fixture).await;
    let key = unique("win");
    let set = replicas[0].marks.set(key.as_bytes(), b"start", MINUTE);
    set.await.unwrap();
    let mut replacing = JoinSet::new();
    for number in 0..16_u8 {
        let (marks, key) = (replicas[usize::from(number) % 2].marks.clone(), key.clone());
        replacing.spawn(async move {
            let value = [number];
            let replaced = marks.replace(key.as_bytes(), b"start", &value, MINUTE);
            replaced.await.unwrap().then_some(number)
        });
    }

    let winners = replacing.join_all().await.into_iter().flatten();

    let winners: Vec<u8> = winners.collect();
    let stored = replicas[1].marks.read(key.as_bytes()).await.unwrap();
    assert_eq!(stored.as_deref(), Some(&winners[..]));
}

/// `remove` compares the value.
pub async fn a_mark_is_removed_only_if_it_has_the_expected_value(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let key = unique("remove");
    let key = key.as_bytes();
    first.marks.set(key, b"1", MINUTE).await.unwrap();

    assert!(!second.marks.remove(key, b"2").await.unwrap());
    assert_eq!(first.marks.read(key).await.unwrap().unwrap(), "1");
    assert!(second.marks.remove(key, b"1").await.unwrap());

    assert_eq!(first.marks.read(key).await.unwrap(), None);
    assert!(!first.marks.remove(key, b"1").await.unwrap());
    let again = first.marks.set_if_absent(key, b"3", MINUTE).await.unwrap();
    assert_eq!(again, None);
}

/// `set` has no condition.
pub async fn a_mark_that_is_set_replaces_any_other(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let key = unique("set");
    let key = key.as_bytes();

    first.marks.set(key, b"1", SHORT).await.unwrap();
    second.marks.set(key, b"2", MINUTE).await.unwrap();

    assert_eq!(first.marks.read(key).await.unwrap().unwrap(), "2");
    assert!(first.marks.remove(key, b"2").await.unwrap());
    second.marks.set(key, b"3", MINUTE).await.unwrap();
    assert_eq!(first.marks.read(key).await.unwrap().unwrap(), "3");
}

/// A replica reads what another was told is stored.
pub async fn a_stored_mark_is_read_by_every_replica_at_once(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let key = unique("read");
    for number in 0..50_u8 {
        first
            .marks
            .set(key.as_bytes(), &[number], MINUTE)
            .await
            .unwrap();

        let read = second.marks.read(key.as_bytes()).await.unwrap();

        assert_eq!(read.as_deref(), Some(&[number][..]));
    }
}

/// Keys and values are bytes, not texts.
pub async fn keys_and_values_may_have_any_bytes(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let prefix = unique("bytes");
    let bytes: Vec<u8> = (0..=255).collect();
    let key = [prefix.as_bytes(), &bytes].concat();
    let other = [prefix.as_bytes(), &bytes[1..]].concat();
    let longest = [
        prefix.as_bytes(),
        &vec![b'*'; MAX_MARK_KEY_BYTES - prefix.len()],
    ]
    .concat();
    let large = vec![0; MAX_MARK_VALUE_BYTES];

    for (key, value) in [(&key, &bytes), (&other, &vec![]), (&longest, &large)] {
        first.marks.set(key, value, MINUTE).await.unwrap();
        let read = second.marks.read(key).await.unwrap().unwrap();
        assert!(read == *value);
        assert!(second.marks.renew(key, value, MINUTE).await.unwrap());
    }
    assert!(first.marks.read(&key).await.unwrap().unwrap() == bytes);
}

/// The size of keys and values is limited.
pub async fn a_mark_that_is_too_large_is_refused(fixture: &dyn ClusterFixture) {
    let [replica] = &started(fixture).await;
    let (key, value) = (
        vec![b'k'; MAX_MARK_KEY_BYTES + 1],
        vec![0; MAX_MARK_VALUE_BYTES + 1],
    );

    let long_key = replica.marks.set_if_absent(&key, b"", MINUTE).await;
    let long_value = replica.marks.set(b"law", &value, MINUTE).await;
    let read = replica.marks.read(&key).await;

    assert!(matches!(long_key, Err(MarkError::TooLarge { .. })));
    assert!(matches!(long_value, Err(MarkError::TooLarge { .. })));
    assert!(matches!(read, Err(MarkError::TooLarge { .. })));
}

const MINUTE: Duration = Duration::from_secs(60);
/// Long enough that a busy machine sees a mark before it expires.
const SHORT: Duration = Duration::from_secs(5);
