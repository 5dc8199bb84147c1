//! What takes the place of `schema.rs` in a build without validation: everything fits.

use bowline_types::Json;

pub(super) struct Schema;

impl Schema {
    #[allow(clippy::unnecessary_wraps, reason = "its counterpart can fail")]
    pub(super) fn read(_: &Json) -> Result<Self, String> {
        Ok(Self)
    }

    pub(super) fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}
