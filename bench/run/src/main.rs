//! Runs the programs under test interleaved in one run, and reports the cost of a message in each. Built and started by
//! `cargo xtask bench`.

mod options;
use options::Options;

mod baseline;
mod callgrind;
mod installed;
mod legs;
mod load;
mod machine;
mod measure;
mod program;
mod report;
mod svg;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let passed = match words.as_slice() {
        [act, file] if act == "--check-counts" => baseline::check(Path::new(file)),
        [act, file] if act == "--bless-counts" => baseline::bless(Path::new(file)),
        _ => return measure_all(&words),
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn measure_all(words: &[String]) -> ExitCode {
    let options = match Options::parse(words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{}", legs::usage());
            return ExitCode::FAILURE;
        }
    };
    machine::raise_file_limit();
    let mut rows = Vec::new();
    for (name, leg) in legs::LEGS {
        if !options.wants(name) {
            continue;
        }
        eprintln!("… {name}");
        let leg_rows = leg(&options);
        if !options.json {
            println!("{}", report::text(&leg_rows));
        }
        rows.extend(leg_rows);
        // After each leg, so that an interrupted run keeps its results.
        if let Some(folder) = &options.write
            && let Err(error) = write(folder, &rows, &options)
        {
            let folder = folder.display();
            eprintln!("failed to write the report to {folder}: {error}");
            return ExitCode::FAILURE;
        }
    }
    if options.json {
        println!("{}", report::json(&rows));
    }
    ExitCode::SUCCESS
}

fn write(folder: &Path, rows: &[measure::Row], options: &Options) -> std::io::Result<()> {
    let file = folder.join("RESULTS.md");
    let text = match options.is_complete() {
        true => report::markdown(rows, options),
        // The results of the other legs stay.
        false => report::with_bridges(&std::fs::read_to_string(&file)?, rows, options),
    };
    std::fs::write(file, text)?;
    if let Some(picture) = svg::draw(rows) {
        std::fs::write(folder.join("growth.svg"), picture)?;
    }
    Ok(())
}
