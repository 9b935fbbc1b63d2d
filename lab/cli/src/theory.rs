//! `serpent-lab theory`: closed forms as tables and plots, optionally with simulations beside them.

mod args;
mod figure;
mod question;
mod shown;
mod simulate;

pub use self::args::TheoryArgs;
pub use self::question::Failure;
use self::question::Question;

/// Computes what is asked for, writes plots, and returns what to print.
pub fn theory(args: &TheoryArgs) -> Result<String, Failure> {
    let question = Question::new(args)?;
    let mut cells = question.cells()?;
    if args.check {
        simulate::beside(&mut cells, &question, args.seeds, args.requests);
    }
    figure::write(args, &question, &cells)?;
    Ok(if args.json { shown::as_json(&cells) } else { shown::as_text(&question, &cells, args.check) })
}

#[cfg(test)]
mod tests;
