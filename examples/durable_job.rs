//! A job that survives `kill -9`: it goes on where it was, in the next process of its server.
//!
//! `cargo run --example durable_job -- jobs.db` serves over stdio, with tasks in the SQLite database `jobs.db`. A call of
//! `render` becomes a task with a step for each scene, and each scene is printed to standard error when it is rendered.
//! Kill the server in the middle and start it again with the same database: the client asks for its task by id, and
//! only the scenes that were not rendered are printed. It takes 6 to 8 seconds until the next process takes the task
//! over.

use std::time::Duration;

use bowline::Progress;
use bowline::prelude::*;
use bowline_tasks::Tasks;

/// Renders a film, scene by scene.
#[tool(task(resumable))]
async fn render(
    cx: Context,
    #[schemars(range(min = 1, max = 1000))] scenes: u32,
    /// for each scene
    #[tool(default = 100)]
    milliseconds: u64,
) -> Result<String, ToolError> {
    let mut film = Vec::new();
    for scene in 1..=scenes {
        // Stored when it is done. In the next process, `step` returns what is stored and does not run the work again.
        let step = format!("scene {scene}");
        let frames: u32 = cx.step(&step, render_scene(scene, milliseconds)).await?;
        film.push(frames);
        // The status message of the task.
        cx.progress(Progress::new(scene).total(scenes).message(step));
    }
    Ok(format!("{} frames", film.iter().sum::<u32>()))
}

async fn render_scene(scene: u32, milliseconds: u64) -> u32 {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await; // the work
    eprintln!("rendered scene {scene}");
    scene * 24
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = std::env::args().nth(1).unwrap_or("jobs.db".to_owned());
    Server::new("film", "1.0.0")
        .tool(render)
        .extension(Tasks::sqlite(database)?)
        .serve_stdio()
        .await?;
    Ok(())
}
