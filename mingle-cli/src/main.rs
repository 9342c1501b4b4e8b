//! The program `mingle`.

fn main() -> std::process::ExitCode {
    mingle_cli::main()
}
