//! The client capabilities and extensions that a tool requires, checked before its handler runs.

use bowline_types::{
    CapabilitySettings, ClientCapabilities, MissingRequiredClientCapability, RpcError,
};

/// A client capability that a tool requires; see [`Tool::requires_capability`](super::Tool::requires_capability).
///
/// # Examples
///
/// ```
/// use bowline::{Tool, server::RequiredCapability};
///
/// let tool = Tool::new("book", async || "booked").requires_capability(RequiredCapability::Elicitation);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequiredCapability {
    /// Form mode elicitation: the user fills in a form.
    Elicitation,
    /// URL mode elicitation: the user opens a URL.
    ElicitationByUrl,
    /// Sampling: the client generates a message with its model.
    Sampling,
    /// Sampling with tools.
    SamplingWithTools,
    /// The roots of the client.
    Roots,
}

impl RequiredCapability {
    /// Adds the capability to `missing` unless it is in `declared`.
    fn add_missing(self, declared: &ClientCapabilities, missing: &mut ClientCapabilities) {
        let elicitation = declared.elicitation.as_ref();
        let sampling = declared.sampling.as_ref();
        match self {
            // By the specification, `elicitation` without a mode means form mode.
            Self::Elicitation => {
                if !elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none()) {
                    let modes = missing.elicitation.get_or_insert_default();
                    modes.form = Some(CapabilitySettings::default());
                }
            }
            Self::ElicitationByUrl => {
                if elicitation.is_none_or(|modes| modes.url.is_none()) {
                    let modes = missing.elicitation.get_or_insert_default();
                    modes.url = Some(CapabilitySettings::default());
                }
            }
            Self::Sampling => {
                if sampling.is_none() {
                    missing.sampling.get_or_insert_default();
                }
            }
            Self::SamplingWithTools => {
                if sampling.is_none_or(|sampling| sampling.tools.is_none()) {
                    let sampling = missing.sampling.get_or_insert_default();
                    sampling.tools = Some(CapabilitySettings::default());
                }
            }
            Self::Roots => {
                if declared.roots.is_none() {
                    missing.roots.get_or_insert_default();
                }
            }
        }
    }
}

/// Checks that the declared capabilities include all of `capabilities` and `extensions`.
pub(super) fn check(
    capabilities: &[RequiredCapability],
    extensions: &[String],
    declared: &ClientCapabilities,
) -> Result<(), RpcError> {
    let mut missing = ClientCapabilities::default();
    for capability in capabilities {
        capability.add_missing(declared, &mut missing);
    }
    for id in extensions {
        let known = declared.extensions.as_ref();
        if !known.is_some_and(|known| known.contains_key(id)) {
            let lacking = missing.extensions.get_or_insert_default();
            lacking.insert(id.clone(), CapabilitySettings::default());
        }
    }
    if missing == ClientCapabilities::default() {
        return Ok(());
    }
    Err(MissingRequiredClientCapability::new(missing).into())
}

/// Checks that the declared capabilities include an extension.
pub(in crate::server) fn check_declared(
    id: &str,
    declared: &ClientCapabilities,
) -> Result<(), RpcError> {
    let known = declared.extensions.as_ref();
    if known.is_some_and(|known| known.contains_key(id)) {
        return Ok(());
    }
    check(&[], &[id.to_owned()], declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(capabilities: &[RequiredCapability], declared: &str) -> Option<String> {
        let declared = serde_json::from_str(declared).unwrap();
        let extensions = ["com.example/drawing".to_owned()];
        let extensions = if capabilities.is_empty() {
            &extensions[..]
        } else {
            &[]
        };
        let data = check(capabilities, extensions, &declared)
            .err()?
            .data
            .unwrap();
        Some(data.to_string())
    }

    #[test]
    fn exactly_the_missing_capabilities_are_reported() {
        for (capabilities, declared, required) in [
            (
                vec![RequiredCapability::Elicitation],
                r#"{"elicitation":{}}"#,
                None,
            ),
            (
                vec![RequiredCapability::Elicitation],
                "{}",
                Some(r#"{"elicitation":{"form":{}}}"#),
            ),
            (
                vec![RequiredCapability::Elicitation],
                r#"{"elicitation":{"url":{}}}"#,
                Some(r#"{"elicitation":{"form":{}}}"#),
            ),
            (
                vec![RequiredCapability::ElicitationByUrl],
                r#"{"elicitation":{}}"#,
                Some(r#"{"elicitation":{"url":{}}}"#),
            ),
            (
                vec![RequiredCapability::Sampling],
                r#"{"sampling":{}}"#,
                None,
            ),
            (vec![], r#"{"extensions":{"com.example/drawing":{}}}"#, None),
            (
                vec![],
                r#"{"extensions":{"com.example/other":{}}}"#,
                Some(r#"{"extensions":{"com.example/drawing":{}}}"#),
            ),
            (
                vec![
                    RequiredCapability::SamplingWithTools,
                    RequiredCapability::Roots,
                ],
                r#"{"sampling":{}}"#,
                Some(r#"{"sampling":{"tools":{}},"roots":{}}"#),
            ),
        ] {
            let required =
                required.map(|required| format!(r#"{{"requiredCapabilities":{required}}}"#));

            assert_eq!(
                missing(&capabilities, declared),
                required,
                "{capabilities:?} of {declared}"
            );
        }
    }

    #[test]
    fn the_message_names_the_missing_capabilities() {
        let declared = ClientCapabilities::default();
        let message = |capabilities: &[RequiredCapability], extensions: &[String]| {
            let error = check(capabilities, extensions, &declared).unwrap_err();
            error.message
        };

        assert_eq!(
            message(&[RequiredCapability::Elicitation], &[]),
            "the request requires the client capability `elicitation.form`, which was not declared"
        );
        assert_eq!(
            message(&[], &["com.example/drawing".to_owned()]),
            "the request requires the client capability `extensions.com.example/drawing`, which was not declared"
        );
        assert_eq!(
            message(
                &[
                    RequiredCapability::SamplingWithTools,
                    RequiredCapability::ElicitationByUrl,
                    RequiredCapability::Elicitation,
                    RequiredCapability::Roots,
                ],
                &[]
            ),
            "the request requires the client capabilities `elicitation.form`, `elicitation.url`, `roots`, \
             `sampling.tools`, which were not declared"
        );
    }
}
