//! Randomness from the operating system.

/// Bytes that nobody can guess.
///
/// # Errors
///
/// If the operating system has none, in words.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], &'static str> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| "the operating system gives no randomness")?;
    Ok(bytes)
}
