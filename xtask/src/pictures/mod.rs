//! `cargo xtask pictures`: runs the command in a terminal, and draws what the terminal shows for the guide.
//!
//! ```text
//! Scene ── keys, texts to wait for ──▶ tmux ── screen with colours ──▶ Screen ──▶ SVG in docs/pictures/
//! ```

mod scenes;

mod screen;

mod svg;

mod terminal;

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::process;
use scenes::{SCENES, Scene, Step};
use screen::Screen;
use terminal::Terminal;

/// Draws the scenes whose name contains one of `only`, or all of them, in every size. A word with a slash is the folder of
/// a `bowline` that is built already; it is built otherwise.
pub(crate) fn run(root: &Path, only: &[String]) -> io::Result<bool> {
    let target = process::target_folder(root);
    let (folders, only): (Vec<_>, Vec<_>) = only.iter().partition(|word| word.contains('/'));
    let programs = match folders.first() {
        Some(folder) => fs::canonicalize(folder)?,
        None => {
            let mut build = process::cargo(root);
            build.args(["build", "--release", "--package", "bowline-cli"]);
            if !process::run(&mut build)? {
                return Ok(false);
            }
            target.join("release")
        }
    };
    let work = target.join("pictures");
    let pictures = root.join("docs/pictures");
    fs::create_dir_all(&pictures)?;
    for scene in SCENES {
        if !only.is_empty() && !only.iter().any(|word| scene.name.contains(word.as_str())) {
            continue;
        }
        for size in SIZES {
            let folder = empty_folder(&work.join(scene.name))?;
            let screen = play(scene, size, &programs, &folder)?;
            let file = pictures.join(format!("{}-{}.svg", scene.name, size.columns));
            fs::write(&file, svg::draw(&screen, size, scene.title))?;
            println!("{}", file.strip_prefix(root).unwrap_or(&file).display());
        }
    }
    Ok(true)
}

/// Plays a scene in a terminal of its own; returns the screen at its end.
fn play(scene: &Scene, size: Size, programs: &Path, folder: &Path) -> io::Result<Screen> {
    let terminal = Terminal::start(size, programs, folder)?;
    for step in scene.steps {
        let done = match step {
            Step::Type(text) => terminal.type_text(text),
            Step::Press(key) => terminal.press(key),
            Step::WaitFor(text) => terminal.wait_for(text),
            Step::WaitForPrompt => terminal.wait_for_prompt(),
        };
        done.map_err(|error| io::Error::other(format!("scene `{}`: {error}", scene.name)))?;
    }
    terminal.screen()
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

const SIZES: [Size; 2] = [
    Size {
        columns: 80,
        rows: 24,
    },
    Size {
        columns: 200,
        rows: 50,
    },
];

fn empty_folder(path: &Path) -> io::Result<PathBuf> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(path)?,
    }
    Ok(path.to_owned())
}
