//! Tests of sealed session ids.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_types::Json;
use serde_json::json;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn facts(client: Value, capabilities: Value) -> HandshakeFacts {
    let mut caller = Caller::new(Dialect::of("2025-06-18").unwrap());
    caller.implementation = Some(Json::from(client).decode().unwrap());
    caller.capabilities = Json::from(capabilities).decode().unwrap();
    let mut features = LegacyFeatures::default();
    features.logging = true;
    HandshakeFacts {
        owner: *b"replica1",
        created: 1_700_000_000,
        features,
        caller,
    }
}

fn plain() -> HandshakeFacts {
    facts(
        json!({"name": "editor", "version": "1.2.3"}),
        json!({"roots": {"listChanged": true}, "sampling": {}}),
    )
}

fn seal(facts: &HandshakeFacts) -> Arc<str> {
    let sealed = seal_session_id(&keys(), &Principal::anonymous(), facts, DAY);
    sealed.unwrap().expect("it fits")
}

fn open(id: &str) -> Result<HandshakeFacts, SealError> {
    open_session_id(&keys(), &Principal::anonymous(), id)
}

fn keys() -> Sealer {
    Sealer::new([1; 32])
}

#[test]
fn an_id_opens_with_the_facts_of_its_handshake() {
    let unknown = json!({"roots": {"listChanged": true, "depth": 7}, "elicitation": {"url": {}},
        "experimental": {"x": {"y": [1]}}, "vendor": {"a": null}});
    let mut anonymous = plain();
    anonymous.caller.implementation = None;
    anonymous.features = LegacyFeatures::default();
    for facts in [
        plain(),
        anonymous,
        facts(json!({"name": "", "version": ""}), json!({})),
        facts(json!({"name": "ü", "title": "T", "version": "1"}), unknown),
        facts(
            json!({"name": "a", "version": "1"}),
            json!({"roots": {"listChanged": false}}),
        ),
    ] {
        let id = seal(&facts);

        assert_eq!(open(&id).unwrap(), facts);
        assert!(id.len() <= MAX_ID_CHARS);
        let visible = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        assert!(id.bytes().all(visible), "{id}");
    }
}

#[test]
fn known_capabilities_take_two_bytes() {
    let all = json!({"roots": {"listChanged": true}, "sampling": {"context": {}, "tools": {}},
        "elicitation": {"form": {}, "url": {}}});
    let capabilities: ClientCapabilities = Json::from(all).decode().unwrap();

    let (bits, rest) = split_capabilities(&capabilities).unwrap();

    assert_eq!((bits, rest.len()), (0b1111_1111, 0));
    assert!(seal(&plain()).len() < 150, "{}", seal(&plain()).len());
}

#[test]
fn two_handshakes_never_have_the_same_id() {
    assert_ne!(seal(&plain()), seal(&plain()));
}

#[test]
fn every_truncation_and_every_changed_bit_is_refused() {
    let id = seal(&plain());
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(&*id).unwrap();

    for length in 0..id.len() {
        assert_eq!(open(&id[..length]), Err(SealError::Foreign));
    }
    for bit in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
        assert_eq!(open(&changed), Err(SealError::Foreign), "bit {bit}");
    }
    for other in [format!("{id}A"), format!("{id}="), "a".repeat(5000)] {
        assert_eq!(open(&other), Err(SealError::Foreign));
    }
}

#[test]
fn every_truncation_of_the_content_is_refused() {
    let content = encode_within(&plain(), MAX_CONTENT_BYTES).unwrap();

    for length in 0..content.len() {
        assert_eq!(decode(&content[..length]), None);
    }
    assert_eq!(decode(&[&content[..], b"x"].concat()), None);
    assert!(decode(&content).is_some());
}

#[test]
fn an_id_opens_for_its_principal_only() {
    let (ada, bob) = (Principal::named("ada"), Principal::named("bob"));
    let id = seal_session_id(&keys(), &ada, &plain(), DAY);
    let id = id.unwrap().unwrap();

    assert!(open_session_id(&keys(), &ada, &id).is_ok());
    for other in [&bob, &Principal::anonymous()] {
        let opened = open_session_id(&keys(), other, &id);
        assert_eq!(opened, Err(SealError::Foreign));
    }
}

#[test]
fn an_id_expires_whatever_its_use() {
    let seconds = Arc::new(AtomicU64::new(1000));
    let now = seconds.clone();
    let keys = keys().clock(move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::Relaxed)));
    let anonymous = Principal::anonymous();
    let id = seal_session_id(&keys, &anonymous, &plain(), DAY);
    let id = id.unwrap().unwrap();

    seconds.fetch_add(DAY.as_secs() - 1, Ordering::Relaxed);
    assert!(open_session_id(&keys, &anonymous, &id).is_ok());
    seconds.fetch_add(1, Ordering::Relaxed);
    let expired = open_session_id(&keys, &anonymous, &id);
    assert_eq!(expired, Err(SealError::Expired));
}

#[test]
fn an_id_of_a_retired_key_still_opens() {
    let rotated = Sealer::new([2; 32]).also_decrypt([1; 32]);
    let id = seal(&plain());

    let opened = open_session_id(&rotated, &Principal::anonymous(), &id);

    assert_eq!(opened.unwrap(), plain());
}

#[test]
fn what_does_not_fit_is_left_out_of_the_clients_description() {
    let long = |length: usize| "x".repeat(length);
    let icons = json!([{"src": long(700)}]);
    let client = json!({"name": "a", "version": "1", "title": "T", "icons": icons});
    let described = json!({"name": "a", "version": "1", "description": long(700), "icons": icons});
    let named = json!({"name": format!("{}ü", long(63)), "version": long(900)});

    let opened = |client| open(&seal(&facts(client, json!({"roots": {}})))).unwrap();
    let without_icons = opened(client).caller.implementation.unwrap();
    let short = opened(described).caller.implementation.unwrap();
    let cut = opened(named).caller.implementation.unwrap();

    assert_eq!(without_icons.title.as_deref(), Some("T"));
    assert_eq!(without_icons.icons, None);
    assert_eq!(short, Implementation::new("a", "1"));
    assert_eq!(cut, Implementation::new(long(63), long(64)));
}

#[test]
fn capabilities_are_never_shortened() {
    let too_many = json!({"experimental": {"x": {"y": "z".repeat(700)}}});
    let facts = facts(json!({"name": "a", "version": "1"}), too_many);

    let sealed = seal_session_id(&keys(), &Principal::anonymous(), &facts, DAY);

    assert_eq!(sealed, Ok(None));
}

#[test]
fn the_longest_content_fits_into_the_longest_id() {
    let with_length = |length: usize| {
        let experimental = json!({"experimental": {"x": {"y": "z".repeat(length)}}});
        let facts = facts(json!({"name": "a", "version": "1"}), experimental);
        seal_session_id(&keys(), &Principal::anonymous(), &facts, DAY).unwrap()
    };
    let longest = (500..700)
        .filter_map(with_length)
        .next_back()
        .expect("one fits");

    assert!(
        (1020..=MAX_ID_CHARS).contains(&longest.len()),
        "{}",
        longest.len()
    );
    assert!(open(&longest).is_ok());
}
