//! Images and other binary content: shown where the terminal can, saved to a file otherwise.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::output::Output;

/// A way in which terminals show images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageProtocol {
    Kitty,
    Iterm2,
}

/// Returns the protocol that the terminal understands, by the variables that terminals set.
fn image_protocol(variable: impl Fn(&str) -> Option<String>) -> Option<ImageProtocol> {
    let is =
        |name: &str, part: &str| variable(name).is_some_and(|it| it.to_lowercase().contains(part));
    // They do not pass images on unless they are told to.
    let is_multiplexed = variable("TMUX").is_some() || is("TERM", "screen");
    if is_multiplexed {
        return None;
    }
    let is_kitty = variable("KITTY_WINDOW_ID").is_some()
        || is("TERM", "kitty")
        || is("TERM", "ghostty")
        || is("TERM_PROGRAM", "ghostty");
    let is_iterm2 =
        is("TERM_PROGRAM", "iterm") || is("TERM_PROGRAM", "wezterm") || is("LC_TERMINAL", "iterm");
    match (is_kitty, is_iterm2) {
        (true, _) => Some(ImageProtocol::Kitty),
        (_, true) => Some(ImageProtocol::Iterm2),
        _ => None,
    }
}

/// Returns the escape codes that show an image, if stdout is a terminal that can.
pub(crate) fn inline_image(bytes: &[u8], mime_type: &str, output: Output) -> Option<String> {
    if !output.is_styled || bytes.is_empty() || bytes.len() > MAX_INLINE_BYTES {
        return None;
    }
    match image_protocol(|name| std::env::var(name).ok())? {
        // Kitty decodes PNG only.
        ImageProtocol::Kitty if mime_type == "image/png" => Some(kitty_image(bytes)),
        ImageProtocol::Kitty => None,
        ImageProtocol::Iterm2 => Some(iterm2_image(bytes)),
    }
}

fn kitty_image(bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let chunks: Vec<&str> = (0..encoded.len())
        .step_by(KITTY_CHUNK)
        .map(|at| &encoded[at..(at + KITTY_CHUNK).min(encoded.len())])
        .collect();
    let mut text = String::new();
    for (at, chunk) in chunks.iter().enumerate() {
        let format = if at == 0 { "a=T,f=100," } else { "" };
        let more = u8::from(at + 1 < chunks.len());
        text.push_str(&format!("\u{1b}_G{format}m={more};{chunk}\u{1b}\\"));
    }
    text
}

fn iterm2_image(bytes: &[u8]) -> String {
    let (size, encoded) = (bytes.len(), STANDARD.encode(bytes));
    format!("\u{1b}]1337;File=inline=1;size={size};preserveAspectRatio=1:{encoded}\u{7}")
}

/// Writes bytes to a new file in `folder`, and returns its path. No file is replaced.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn save(
    bytes: &[u8],
    stem: &str,
    mime_type: &str,
    folder: &Path,
) -> io::Result<PathBuf> {
    let (stem, extension) = (safe_stem(stem), extension(mime_type));
    for number in 1..=MAX_NUMBER {
        let path = match number {
            1 => folder.join(format!("{stem}.{extension}")),
            _ => folder.join(format!("{stem}-{number}.{extension}")),
        };
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => return file.write_all(bytes).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many files of this name"))
}

/// Makes the name of a file of the text of a server, which must not choose a folder.
fn safe_stem(text: &str) -> String {
    let name = text
        .rsplit(['/', '\\'])
        .find(|part| !part.is_empty())
        .unwrap_or_default();
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let safe: String = name.chars().filter(|c| is_safe(*c)).take(60).collect();
    match safe.is_empty() {
        true => "content".to_owned(),
        false => safe,
    }
}

fn extension(mime_type: &str) -> &str {
    let essence = mime_type.split(';').next().unwrap_or_default().trim();
    match essence {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "audio/mpeg" => "mp3",
        "audio/x-wav" => "wav",
        "text/plain" => "txt",
        "application/octet-stream" | "" => "bin",
        _ => {
            let name = essence.rsplit_once('/').map_or("bin", |(_, name)| name);
            let is_plain = !name.is_empty()
                && name.len() <= 8
                && name.bytes().all(|it| it.is_ascii_alphanumeric());
            if is_plain { name } else { "bin" }
        }
    }
}

const KITTY_CHUNK: usize = 4096;
const MAX_INLINE_BYTES: usize = 8 * 1024 * 1024;
const MAX_NUMBER: u32 = 9999;

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(variables: &[(&str, &str)]) -> Option<ImageProtocol> {
        image_protocol(|name| {
            let found = variables.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn terminals_that_show_images_are_recognized() {
        assert_eq!(
            protocol(&[("TERM", "xterm-kitty")]),
            Some(ImageProtocol::Kitty)
        );
        assert_eq!(
            protocol(&[("TERM_PROGRAM", "iTerm.app")]),
            Some(ImageProtocol::Iterm2)
        );
        assert_eq!(
            protocol(&[("TERM_PROGRAM", "WezTerm")]),
            Some(ImageProtocol::Iterm2)
        );
        assert_eq!(protocol(&[("TERM", "xterm-256color")]), None);
        assert_eq!(protocol(&[("TERM", "xterm-kitty"), ("TMUX", "1")]), None);
    }

    #[test]
    fn a_large_image_is_sent_in_chunks() {
        let text = kitty_image(&[7; 4000]);

        assert!(text.starts_with("\u{1b}_Ga=T,f=100,m=1;"));
        assert_eq!(text.matches("\u{1b}_G").count(), 2);
        assert!(text.ends_with("\u{1b}\\") && text.contains("\u{1b}_Gm=0;"));
    }

    #[test]
    fn the_server_cannot_choose_the_folder_of_a_file() {
        assert_eq!(safe_stem("../../etc/passwd.png"), "passwd");
        assert_eq!(safe_stem("file:///a/b c.tar.gz"), "bctar");
        assert_eq!(safe_stem(".."), "content");
        assert_eq!(safe_stem("C:\\x\\chart.png"), "chart");
        assert_eq!(extension("image/png"), "png");
        assert_eq!(extension("image/../../x"), "x");
        assert_eq!(extension("application/vnd.oasis.opendocument"), "bin");
    }

    #[test]
    fn files_are_never_replaced() {
        let folder = std::env::temp_dir().join(format!("bowline-media-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();

        let first = save(b"1", "chart", "image/png", &folder).unwrap();
        let second = save(b"2", "chart", "image/png", &folder).unwrap();

        assert!(first.ends_with("chart.png") && second.ends_with("chart-2.png"));
        assert_eq!(std::fs::read(first).unwrap(), b"1");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
