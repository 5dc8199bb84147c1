//! Randomness from the operating system.

/// Returns cryptographically secure random bytes.
///
/// # Errors
///
/// The error message, if the operating system provides none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], &'static str> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|_| "failed to read randomness from the operating system")?;
    Ok(bytes)
}
