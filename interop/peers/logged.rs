// What the implementation logs goes to standard error, from level info on, one line each.

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string().replace('\n', " ");
        eprintln!("{} {}: {text}", record.level(), record.target());
    }

    fn flush(&self) {}
}

fn log_lines() {
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}
