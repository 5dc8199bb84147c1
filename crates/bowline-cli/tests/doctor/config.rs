//! `bowline doctor --fix-config`.
