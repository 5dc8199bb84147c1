//! What takes the place of `schema.rs` in a build without validation: everything fits.

use bowline_types::Json;

pub(super) struct Schema;

impl Schema {
    pub(super) fn read(_: &Json) -> Option<Self> {
        Some(Self)
    }

    pub(super) fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}
