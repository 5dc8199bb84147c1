//! Tests of a legacy client that sent `initialize` to another process, or never.

use bowline_types::LoggingLevel;

use super::super::legacy::Session;
use super::*;

/// COMPAT-13: a server MAY "read a header-less request as 2025-03-26".
#[test]
fn a_client_without_initialize_is_known_by_its_version_only() {
    let assumed = Dialect::ASSUMED_ON_HTTP;
    let mut opened = Session::without_handshake(assumed, LegacyFeatures::default());

    let admitted = opened.admit(raw("tools/list", json!({})), &Dialects::all());
    let (request, _) = request_in(admitted.unwrap());

    assert_eq!(request.caller.dialect.version, "2025-03-26");
    assert_eq!(request.caller.implementation, None);
    assert_eq!(request.caller.log_level, None);
    assert_eq!(request.caller.least_log_level(), Some(LoggingLevel::Debug));
    assert_eq!(request.caller.capabilities, Default::default());
    assert!(opened.is_ready());
}

#[test]
fn a_handshake_that_another_process_completed_is_continued() {
    let mut caller = Caller::new(Dialect::LATEST_LEGACY);
    caller.capabilities = Json::from(json!({"roots": {}})).decode().unwrap();
    let features = LegacyFeatures {
        logging: true,
        ..LegacyFeatures::default()
    };
    let opened = Session::after_handshake(caller.clone(), features);
    let mut admission = DuplexAdmission::with_era(Dialects::all(), Era::Legacy(opened));

    let admitted = admission.admit(raw("tools/list", json!({})));
    let level = admission.admit(raw("logging/setLevel", json!({"level": "error"})));
    let subscribe = admission.admit(raw("resources/subscribe", json!({"uri": "a:1"})));
    let again = admission.admit(raw("initialize", json!({})));

    assert_eq!(*request_in(admitted.unwrap()).0.caller, caller);
    assert!(matches!(level, Ok(RequestAction::Respond(_))));
    assert!(subscribe.is_err() && again.is_err());
    let initialized = Notification::new("notifications/initialized", None);
    let action = admission.handle_notification(&initialized);
    assert_eq!(action, NotificationAction::Ignore);
}
