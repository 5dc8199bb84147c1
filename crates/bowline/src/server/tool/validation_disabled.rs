//! Replaces `validation` without the feature `validate`: every value is valid.

use bowline_types::Json;

#[derive(Debug)]
pub(super) struct SchemaValidators;

impl SchemaValidators {
    #[allow(
        clippy::unnecessary_wraps,
        reason = "the signature of the validating version"
    )]
    pub(super) fn compile(_: &Json, _: Option<&Json>) -> Result<Self, String> {
        Ok(Self)
    }

    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the signature of the validating version"
    )]
    pub(super) fn arguments(&self, _: &Json) -> Result<(), String> {
        Ok(())
    }

    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the signature of the validating version"
    )]
    pub(super) fn output(&self, _: &Json) -> Result<(), String> {
        Ok(())
    }
}
