//! [`fit_question`], which converts an input request to what a protocol version defines.

use bowline_types::{Json, meta_key};

use super::edit::edit_meta;
use super::{Dialect, ElicitationModes, InputMechanism, Tasks, legacy};
use crate::input::{InputKind, RawInputRequest};
use crate::json::{Object, pick};

/// Converts an input request, which a server of any version made, to what `dialect` defines.
///
/// Members that the version does not define are removed, and forms and messages are converted: a field with titled
/// choices, for example, gets `enumNames` in 2025-06-18. Other members are kept.
///
/// 2025-11-25 requires an `elicitationId` in URL mode. One that is missing is not added: it must be unique, so the
/// caller has to generate it.
///
/// # Errors
///
/// If the version cannot express the input request.
///
/// # Examples
///
/// ```
/// use bowline_core::era::{Dialect, fit_question};
/// use bowline_core::input::{InputKind, RawInputRequest};
/// use bowline_types::Json;
///
/// let params = r#"{"mode":"url","message":"Pay.","url":"https://a.example","elicitationId":"1"}"#;
/// let question = RawInputRequest::new(InputKind::Elicitation, Some(Json::parse(params)?));
///
/// let fitted = fit_question(Dialect::LATEST, question.clone())?;
/// assert_eq!(
///     fitted.params.unwrap().as_str(),
///     r#"{"mode":"url","message":"Pay.","url":"https://a.example"}"#
/// );
/// let old = Dialect::of("2025-06-18").unwrap();
/// assert_eq!(
///     fit_question(old, question).unwrap_err().to_string(),
///     "protocol version 2025-06-18 does not support `elicitation/create in URL mode`"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fit_question(
    dialect: &'static Dialect,
    question: RawInputRequest,
) -> Result<RawInputRequest, Unsupported> {
    check(dialect, &question)?;
    let RawInputRequest { kind, params } = question;
    let params = params.map(|params| match Object::read(&params) {
        Ok(mut members) => {
            remove_undefined(dialect, &mut members);
            if let Some(legacy) = legacy::Adapter::of(dialect) {
                legacy.convert_question(kind.method(), &mut members);
            }
            members.to_json()
        }
        Err(_) => params.clone(),
    });
    Ok(RawInputRequest::new(kind, params))
}

/// A protocol version cannot express an input request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol version {version} does not support `{what}`")]
#[non_exhaustive]
pub struct Unsupported {
    /// The method or mode.
    pub what: &'static str,
    /// The version.
    pub version: &'static str,
}

fn check(dialect: &Dialect, question: &RawInputRequest) -> Result<(), Unsupported> {
    let method = question.kind.method();
    let unsupported = |what| {
        let version = dialect.version;
        Err(Unsupported { what, version })
    };
    if dialect.input_mechanism == InputMechanism::Request && dialect.lacks_server_request(method) {
        return unsupported(method);
    }
    if !dialect.rich_sampling && question.has_tools() {
        return unsupported("sampling/createMessage with tools");
    }
    if !dialect.rich_forms && question.has_multi_select() {
        return unsupported("elicitation/create with multi-select fields");
    }
    if question.kind != InputKind::Elicitation {
        return Ok(());
    }
    match dialect.elicitation {
        ElicitationModes::FormAndUrl => Ok(()),
        ElicitationModes::Form if !question.is_url() => Ok(()),
        ElicitationModes::Form => unsupported("elicitation/create in URL mode"),
        ElicitationModes::None => unsupported(method),
    }
}

fn remove_undefined(dialect: &Dialect, params: &mut Object<'_>) {
    if dialect.tasks != Tasks::Core {
        params.remove("task");
    }
    if dialect.input_mechanism == InputMechanism::InputRequired {
        // Both refer to a request of its own, which the input request is not in this version.
        params.remove("elicitationId");
        let has_token =
            |meta: &Json| matches!(pick(meta, [meta_key::PROGRESS_TOKEN]), Ok([Some(_)]));
        if params.member("_meta").is_some_and(has_token) {
            edit_meta(params, |meta| {
                meta.remove(meta_key::PROGRESS_TOKEN);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fit(version: &str, kind: InputKind, params: Value) -> Result<Value, &'static str> {
        let dialect = Dialect::of(version).unwrap();
        let question = RawInputRequest::new(kind, Some(params.into()));
        let fitted = fit_question(dialect, question).map_err(|unsupported| unsupported.what)?;
        assert_eq!(fitted.kind, kind);
        Ok(fitted.params.unwrap().decode().unwrap())
    }

    #[test]
    fn a_modern_question_has_no_members_of_a_request() {
        let url = json!({
            "mode": "url", "message": "?", "url": "https://a.example", "elicitationId": "1",
            "task": {}, "x": 1, "_meta": {"progressToken": 1, "a": 2},
        });
        let kept = json!({
            "mode": "url", "message": "?", "url": "https://a.example", "x": 1, "_meta": {"a": 2},
        });

        assert_eq!(
            fit("2026-07-28", InputKind::Elicitation, url.clone()),
            Ok(kept)
        );
        assert_eq!(
            fit("2025-11-25", InputKind::Elicitation, url.clone()),
            Ok(url)
        );
    }

    #[test]
    fn a_form_of_2025_06_18_has_neither_mode_nor_task_nor_titled_choices() {
        let schema = |color: Value| json!({"type": "object", "properties": {"color": color}});
        let titled =
            json!({"type": "string", "title": "Color", "oneOf": [{"const": "r", "title": "Red"}]});
        let mut form = json!({
            "mode": "form", "message": "?", "task": {}, "requestedSchema": schema(titled),
        });
        form["requestedSchema"]["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        let names =
            json!({"type": "string", "title": "Color", "enum": ["r"], "enumNames": ["Red"]});
        let old = json!({"message": "?", "requestedSchema": schema(names)});

        assert_eq!(
            fit("2025-06-18", InputKind::Elicitation, form.clone()),
            Ok(old.clone())
        );
        assert_eq!(
            fit("2025-11-25", InputKind::Elicitation, form.clone()),
            Ok(form)
        );
        for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
            let fitted = fit(version, InputKind::Elicitation, old.clone());
            assert_eq!(fitted, Ok(old.clone()), "{version}");
        }
    }

    #[test]
    fn what_a_version_cannot_express_is_refused() {
        let url = json!({"mode": "url", "message": "?", "url": "https://a.example"});
        let many =
            json!({"message": "?", "requestedSchema": {"properties": {"a": {"type": "array"}}}});
        let form = json!({"message": "?", "requestedSchema": {"properties": {}}});
        let tools = json!({"messages": [], "maxTokens": 1, "tools": []});
        let (elicit, sample) = (InputKind::Elicitation, InputKind::Sampling);
        for (version, kind, params, expected) in [
            ("2025-03-26", elicit, &form, Err("elicitation/create")),
            (
                "2025-06-18",
                elicit,
                &url,
                Err("elicitation/create in URL mode"),
            ),
            (
                "2025-06-18",
                elicit,
                &many,
                Err("elicitation/create with multi-select fields"),
            ),
            (
                "2025-06-18",
                sample,
                &tools,
                Err("sampling/createMessage with tools"),
            ),
            ("2025-11-25", elicit, &url, Ok(())),
            ("2025-11-25", elicit, &many, Ok(())),
            ("2025-11-25", sample, &tools, Ok(())),
            ("2026-07-28", sample, &tools, Ok(())),
        ] {
            let fitted = fit(version, kind, params.clone()).map(drop);
            assert_eq!(fitted, expected, "{version} {params}");
        }
    }

    #[test]
    fn a_message_of_several_blocks_is_split_for_old_versions() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let message = |content: Value| json!({"role": "user", "content": content});
        let sample = |messages: Value| json!({"messages": messages, "maxTokens": 1});
        let several = sample(json!([message(json!([text("a"), text("b")]))]));
        let split = sample(json!([message(text("a")), message(text("b"))]));

        assert_eq!(
            fit("2025-06-18", InputKind::Sampling, several.clone()),
            Ok(split)
        );
        assert_eq!(
            fit("2025-11-25", InputKind::Sampling, several.clone()),
            Ok(several)
        );
    }

    #[test]
    fn a_question_without_params_stays_one() {
        for dialect in Dialect::ALL {
            let roots = RawInputRequest::new(InputKind::Roots, None);
            assert_eq!(fit_question(dialect, roots.clone()), Ok(roots));
        }
    }
}
