//! `taut route`: what goes in, what passes, and where it goes, in the kernel where that can be.

pub(crate) mod bench;
mod check;
mod declare;
mod figures;
mod run;
mod show;

use clap::Subcommand;

use crate::exit::Code;

/// Sensor to output by a condition, in the kernel where that can be
///
/// A route takes events from a source, evaluates a condition at each, and sends what passes to its sinks. Where source
/// and sinks are UDP, all of that runs in the kernel (XDP, or traffic control with several sinks or devices) and ends
/// with the process that holds the route; anything else runs in a thread with everything kept open. The results are the
/// same, and what the stack would refuse (checksums, somebody else's Ethernet address, senders that can't be) is
/// refused in the kernel too. But there a route stands before the packet filter: no rule of nftables or iptables sees
/// what it takes and sends. So where a filter is in use, a route runs in user space unless --place asks for the kernel.
///
/// Loops die: what is sent may pass one host less than what came, and `reply` does not answer ports
/// below 1024 or its own, nor more often than --replies a second; such answers count as lost.
///
/// Sources: udp://ADDRESS:PORT and unix-dgram:PATH (each datagram is an event), tcp://ADDRESS:PORT,
/// unix:PATH and lines:PATH (each line with a number; lines:- is stdin, and a serial device is a
/// PATH), timer:PERIOD. Sinks: reply (to the sender of the datagram), udp://ADDRESS:PORT,
/// unix-dgram:PATH (datagrams: the payload as it came, or 8 bytes of --send in network byte order),
/// tcp://ADDRESS:PORT, unix:PATH, file:PATH (a line with the value or that of --send), mqtt://HOST/TOPIC,
/// mqtts://HOST/TOPIC and nats://HOST/SUBJECT (a message to a broker: the payload as it came, or the digits of the
/// value or that of --send).
///
/// Conditions: numbers are 64-bit and wrap; 5ms is a number of nanoseconds; x/0 is 0 and x%0 is x; shifts take the
/// lowest 6 bits; everything is evaluated at every event. Operators, loose ones first: ?:, ||, &&, == != < <= > >=,
/// |, ^, &, << >>, then + -, then * / %, then - ~ ! before an operand. Names: value (of a datagram `i64be[0]`,
/// unless --field says otherwise), previous, len, count, passed, since_last, since_passed, fields of --field, and
/// by offset `u8[0]`, `i16be[2]`, `u64le[8]`. Functions: abs(x), min(x, y), max(x, y), clamp(x, low, high),
/// prev(x), delta(x), changed(x), rise(c), fall(c), total(x), hysteresis(x, low, high), debounce(c, time), limit(c,
/// times, time), average(x, events), smooth(x, shift), median(x) of three. A datagram shorter than a field that is
/// used counts as short and is ignored. In the kernel, fragments and datagrams with IP options are left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut route run --from udp://10.0.0.1:9000 --when 'value == 0 && since_last > 5ms' --to reply
  taut route run --from udp://10.0.0.1:9000 --field 'level=u16be@2' --when 'hysteresis(level, 10, 20)' \\
      --to udp://10.0.0.2:9000 --send 'average(level, 8)' --to udp://10.0.0.3:9000 --detach
  taut route run --from lines:- --when 'value > 3' --to 'mqtt://10.0.0.2/plant/7?qos=1&buffer=5000'
  taut route check FILE --json                   what runs where, why, and what it lacks for the kernel
  taut route check --from timer:1s --when 'value > 2' --try 1 --try 3@5ms
  taut route list; taut route stats --json; taut route stop NAME

A FILE is TOML:
  [[route]]
  name = \"fire\"
  from = \"udp://10.0.0.1:9000\"
  when = \"temperature > 80 && limit(true, 10, 1s)\"
  fields = { temperature = \"i16be@8\" }
  to = [\"reply\", { sink = \"udp://10.0.0.2:9000\", send = \"temperature\" }]
  place = \"auto\"       # or kernel, xdp-native, xdp-generic, tc, hardirq, kthread, user
  log = \"/var/log/fire.jsonl\"")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Route,
}

#[derive(Debug, Subcommand)]
enum Route {
    Run(run::Args),
    Check(check::Args),
    Bench(bench::Args),
    List(show::ListArgs),
    Stats(show::StatsArgs),
    Stop(show::StopArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    match args.command {
        Route::Run(args) => run::run(args),
        Route::Bench(args) => bench::run(&args),
        Route::Check(args) => check::run(&args),
        Route::List(args) => show::list(&args),
        Route::Stats(args) => show::stats(&args),
        Route::Stop(args) => show::stop(&args),
    }
}
