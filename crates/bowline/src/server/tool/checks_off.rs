//! No checks: what stands in when the feature `validate` is off.

use bowline_types::Json;

#[derive(Debug)]
pub(super) struct Checks;

impl Checks {
    #[allow(
        clippy::unnecessary_wraps,
        reason = "it stands in for one that can fail"
    )]
    pub(super) fn compile(_: &Json, _: Option<&Json>) -> Result<Self, String> {
        Ok(Self)
    }

    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "it stands in for one that can fail"
    )]
    pub(super) fn arguments(&self, _: &Json) -> Result<(), String> {
        Ok(())
    }

    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "it stands in for one that can fail"
    )]
    pub(super) fn output(&self, _: &Json) -> Result<(), String> {
        Ok(())
    }
}
