//! What a tool may ask its caller for, checked before it runs.

use bowline_types::{ClientCapabilities, MissingRequiredClientCapability, RpcError, Settings};

/// Something that a tool may ask its caller for.
///
/// # Examples
///
/// ```
/// use bowline::{Tool, server::Askable};
///
/// let tool = Tool::new("book", async || "booked").asks(Askable::Elicitation);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Askable {
    /// To have the user fill in a form.
    Elicitation,
    /// To send the user to a URL.
    ElicitationByUrl,
    /// To have a model write something.
    Sampling,
    /// To have a model write something, with tools.
    SamplingWithTools,
    /// Which folders it works on.
    Roots,
}

impl Askable {
    /// Adds to `missing` what `declared` lacks for this.
    fn look_for(self, declared: &ClientCapabilities, missing: &mut ClientCapabilities) {
        let elicitation = declared.elicitation.as_ref();
        let sampling = declared.sampling.as_ref();
        match self {
            // With neither mode named, forms are meant.
            Self::Elicitation => {
                if !elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none()) {
                    let modes = missing.elicitation.get_or_insert_default();
                    modes.form = Some(Settings::default());
                }
            }
            Self::ElicitationByUrl => {
                if elicitation.is_none_or(|modes| modes.url.is_none()) {
                    let modes = missing.elicitation.get_or_insert_default();
                    modes.url = Some(Settings::default());
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
                    sampling.tools = Some(Settings::default());
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

/// Checks that a caller who declared this can be asked for all of these, and knows these extensions.
pub(super) fn check(
    asks: &[Askable],
    extensions: &[String],
    declared: &ClientCapabilities,
) -> Result<(), RpcError> {
    let mut missing = ClientCapabilities::default();
    for ask in asks {
        ask.look_for(declared, &mut missing);
    }
    for id in extensions {
        let known = declared.extensions.as_ref();
        if !known.is_some_and(|known| known.contains_key(id)) {
            let lacking = missing.extensions.get_or_insert_default();
            lacking.insert(id.clone(), Settings::default());
        }
    }
    if missing == ClientCapabilities::default() {
        return Ok(());
    }
    Err(MissingRequiredClientCapability::new(missing).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(asks: &[Askable], declared: &str) -> Option<String> {
        let declared = serde_json::from_str(declared).unwrap();
        let extensions = ["com.example/drawing".to_owned()];
        let extensions = if asks.is_empty() {
            &extensions[..]
        } else {
            &[]
        };
        let data = check(asks, extensions, &declared).err()?.data.unwrap();
        Some(data.to_string())
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        for (asks, declared, required) in [
            (vec![Askable::Elicitation], r#"{"elicitation":{}}"#, None),
            (
                vec![Askable::Elicitation],
                "{}",
                Some(r#"{"elicitation":{"form":{}}}"#),
            ),
            (
                vec![Askable::Elicitation],
                r#"{"elicitation":{"url":{}}}"#,
                Some(r#"{"elicitation":{"form":{}}}"#),
            ),
            (
                vec![Askable::ElicitationByUrl],
                r#"{"elicitation":{}}"#,
                Some(r#"{"elicitation":{"url":{}}}"#),
            ),
            (vec![Askable::Sampling], r#"{"sampling":{}}"#, None),
            (vec![], r#"{"extensions":{"com.example/drawing":{}}}"#, None),
            (
                vec![],
                r#"{"extensions":{"com.example/other":{}}}"#,
                Some(r#"{"extensions":{"com.example/drawing":{}}}"#),
            ),
            (
                vec![Askable::SamplingWithTools, Askable::Roots],
                r#"{"sampling":{}}"#,
                Some(r#"{"sampling":{"tools":{}},"roots":{}}"#),
            ),
        ] {
            let required =
                required.map(|required| format!(r#"{{"requiredCapabilities":{required}}}"#));

            assert_eq!(missing(&asks, declared), required, "{asks:?} of {declared}");
        }
    }
}
