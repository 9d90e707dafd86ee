/// Where the user wants a route to run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// In the kernel where that can be, else in user space.
    #[default]
    Auto,
    /// In the kernel, or not at all.
    Kernel,
    /// In the driver, or not at all.
    XdpNative,
    /// After the driver, or not at all.
    XdpGeneric,
    /// In traffic control, or not at all.
    Tc,
    /// In the module's interrupt handler, or not at all.
    #[serde(rename = "hardirq")]
    HardIrq,
    /// In the module's thread, or not at all.
    Kthread,
    /// In user space.
    User,
}
