// Made from rocm_smi.h of librocm-smi-dev 5.2.3-2 by tests/generated.rs.

pub mod rsmi_status_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const RSMI_STATUS_SUCCESS: Type = 0;
    pub const RSMI_STATUS_INVALID_ARGS: Type = 1;
    pub const RSMI_STATUS_NOT_SUPPORTED: Type = 2;
    pub const RSMI_STATUS_FILE_ERROR: Type = 3;
    pub const RSMI_STATUS_PERMISSION: Type = 4;
    pub const RSMI_STATUS_OUT_OF_RESOURCES: Type = 5;
    pub const RSMI_STATUS_INTERNAL_EXCEPTION: Type = 6;
    pub const RSMI_STATUS_INPUT_OUT_OF_BOUNDS: Type = 7;
    pub const RSMI_STATUS_INIT_ERROR: Type = 8;
    pub const RSMI_INITIALIZATION_ERROR: Type = 8;
    pub const RSMI_STATUS_NOT_YET_IMPLEMENTED: Type = 9;
    pub const RSMI_STATUS_NOT_FOUND: Type = 10;
    pub const RSMI_STATUS_INSUFFICIENT_SIZE: Type = 11;
    pub const RSMI_STATUS_INTERRUPT: Type = 12;
    pub const RSMI_STATUS_UNEXPECTED_SIZE: Type = 13;
    pub const RSMI_STATUS_NO_DATA: Type = 14;
    pub const RSMI_STATUS_UNEXPECTED_DATA: Type = 15;
    pub const RSMI_STATUS_BUSY: Type = 16;
    pub const RSMI_STATUS_REFCOUNT_OVERFLOW: Type = 17;
    pub const RSMI_STATUS_UNKNOWN_ERROR: Type = 4294967295;
}
pub mod rsmi_init_flags_t {
    pub type Type = ::std::os::raw::c_ulong;
    pub const RSMI_INIT_FLAG_ALL_GPUS: Type = 1;
    pub const RSMI_INIT_FLAG_RESRV_TEST1: Type = 576460752303423488;
}
pub mod rsmi_sw_component_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const RSMI_SW_COMP_FIRST: Type = 0;
    pub const RSMI_SW_COMP_DRIVER: Type = 0;
    pub const RSMI_SW_COMP_LAST: Type = 0;
}
pub mod rsmi_temperature_metric_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const RSMI_TEMP_CURRENT: Type = 0;
    pub const RSMI_TEMP_FIRST: Type = 0;
    pub const RSMI_TEMP_MAX: Type = 1;
    pub const RSMI_TEMP_MIN: Type = 2;
    pub const RSMI_TEMP_MAX_HYST: Type = 3;
    pub const RSMI_TEMP_MIN_HYST: Type = 4;
    pub const RSMI_TEMP_CRITICAL: Type = 5;
    pub const RSMI_TEMP_CRITICAL_HYST: Type = 6;
    pub const RSMI_TEMP_EMERGENCY: Type = 7;
    pub const RSMI_TEMP_EMERGENCY_HYST: Type = 8;
    pub const RSMI_TEMP_CRIT_MIN: Type = 9;
    pub const RSMI_TEMP_CRIT_MIN_HYST: Type = 10;
    pub const RSMI_TEMP_OFFSET: Type = 11;
    pub const RSMI_TEMP_LOWEST: Type = 12;
    pub const RSMI_TEMP_HIGHEST: Type = 13;
    pub const RSMI_TEMP_LAST: Type = 13;
}
pub mod rsmi_temperature_type_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const RSMI_TEMP_TYPE_FIRST: Type = 0;
    pub const RSMI_TEMP_TYPE_EDGE: Type = 0;
    pub const RSMI_TEMP_TYPE_JUNCTION: Type = 1;
    pub const RSMI_TEMP_TYPE_MEMORY: Type = 2;
    pub const RSMI_TEMP_TYPE_HBM_0: Type = 3;
    pub const RSMI_TEMP_TYPE_HBM_1: Type = 4;
    pub const RSMI_TEMP_TYPE_HBM_2: Type = 5;
    pub const RSMI_TEMP_TYPE_HBM_3: Type = 6;
    pub const RSMI_TEMP_TYPE_LAST: Type = 6;
    pub const RSMI_TEMP_TYPE_INVALID: Type = 4294967295;
}
pub struct RocmSmi {
    __library: ::libloading::Library,
    pub rsmi_init: Result<
        unsafe extern "C" fn(init_flags: u64) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_shut_down: Result<
        unsafe extern "C" fn() -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_num_monitor_devices: Result<
        unsafe extern "C" fn(num_devices: *mut u32) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_name_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            name: *mut ::std::os::raw::c_char,
            len: usize,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_serial_number_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            serial_num: *mut ::std::os::raw::c_char,
            len: u32,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_unique_id_get: Result<
        unsafe extern "C" fn(dv_ind: u32, id: *mut u64) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_pci_id_get: Result<
        unsafe extern "C" fn(dv_ind: u32, bdfid: *mut u64) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_power_ave_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            sensor_ind: u32,
            power: *mut u64,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_energy_count_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            power: *mut u64,
            counter_resolution: *mut f32,
            timestamp: *mut u64,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_power_cap_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            sensor_ind: u32,
            cap: *mut u64,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_power_cap_default_get: Result<
        unsafe extern "C" fn(dv_ind: u32, default_cap: *mut u64) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_power_cap_range_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            sensor_ind: u32,
            max: *mut u64,
            min: *mut u64,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_power_cap_set: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            sensor_ind: u32,
            cap: u64,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_dev_temp_metric_get: Result<
        unsafe extern "C" fn(
            dv_ind: u32,
            sensor_type: u32,
            metric: rsmi_temperature_metric_t::Type,
            temperature: *mut i64,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub rsmi_version_str_get: Result<
        unsafe extern "C" fn(
            component: rsmi_sw_component_t::Type,
            ver_str: *mut ::std::os::raw::c_char,
            len: u32,
        ) -> rsmi_status_t::Type,
        ::libloading::Error,
    >,
}
impl RocmSmi {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let library = unsafe { ::libloading::Library::new(path) }?;
        unsafe { Self::from_library(library) }
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let rsmi_init = unsafe { __library.get(b"rsmi_init\0") }.map(|sym| *sym);
        let rsmi_shut_down = unsafe { __library.get(b"rsmi_shut_down\0") }
            .map(|sym| *sym);
        let rsmi_num_monitor_devices = unsafe {
            __library.get(b"rsmi_num_monitor_devices\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_name_get = unsafe { __library.get(b"rsmi_dev_name_get\0") }
            .map(|sym| *sym);
        let rsmi_dev_serial_number_get = unsafe {
            __library.get(b"rsmi_dev_serial_number_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_unique_id_get = unsafe {
            __library.get(b"rsmi_dev_unique_id_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_pci_id_get = unsafe { __library.get(b"rsmi_dev_pci_id_get\0") }
            .map(|sym| *sym);
        let rsmi_dev_power_ave_get = unsafe {
            __library.get(b"rsmi_dev_power_ave_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_energy_count_get = unsafe {
            __library.get(b"rsmi_dev_energy_count_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_power_cap_get = unsafe {
            __library.get(b"rsmi_dev_power_cap_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_power_cap_default_get = unsafe {
            __library.get(b"rsmi_dev_power_cap_default_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_power_cap_range_get = unsafe {
            __library.get(b"rsmi_dev_power_cap_range_get\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_power_cap_set = unsafe {
            __library.get(b"rsmi_dev_power_cap_set\0")
        }
            .map(|sym| *sym);
        let rsmi_dev_temp_metric_get = unsafe {
            __library.get(b"rsmi_dev_temp_metric_get\0")
        }
            .map(|sym| *sym);
        let rsmi_version_str_get = unsafe { __library.get(b"rsmi_version_str_get\0") }
            .map(|sym| *sym);
        Ok(RocmSmi {
            __library,
            rsmi_init,
            rsmi_shut_down,
            rsmi_num_monitor_devices,
            rsmi_dev_name_get,
            rsmi_dev_serial_number_get,
            rsmi_dev_unique_id_get,
            rsmi_dev_pci_id_get,
            rsmi_dev_power_ave_get,
            rsmi_dev_energy_count_get,
            rsmi_dev_power_cap_get,
            rsmi_dev_power_cap_default_get,
            rsmi_dev_power_cap_range_get,
            rsmi_dev_power_cap_set,
            rsmi_dev_temp_metric_get,
            rsmi_version_str_get,
        })
    }
    pub unsafe fn rsmi_init(&self, init_flags: u64) -> rsmi_status_t::Type {
        unsafe {
            (self.rsmi_init.as_ref().expect("Expected function, got error."))(init_flags)
        }
    }
    pub unsafe fn rsmi_shut_down(&self) -> rsmi_status_t::Type {
        unsafe {
            (self.rsmi_shut_down.as_ref().expect("Expected function, got error."))()
        }
    }
    pub unsafe fn rsmi_num_monitor_devices(
        &self,
        num_devices: *mut u32,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_num_monitor_devices
                .as_ref()
                .expect("Expected function, got error."))(num_devices)
        }
    }
    pub unsafe fn rsmi_dev_name_get(
        &self,
        dv_ind: u32,
        name: *mut ::std::os::raw::c_char,
        len: usize,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_name_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, name, len)
        }
    }
    pub unsafe fn rsmi_dev_serial_number_get(
        &self,
        dv_ind: u32,
        serial_num: *mut ::std::os::raw::c_char,
        len: u32,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_serial_number_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, serial_num, len)
        }
    }
    pub unsafe fn rsmi_dev_unique_id_get(
        &self,
        dv_ind: u32,
        id: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_unique_id_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, id)
        }
    }
    pub unsafe fn rsmi_dev_pci_id_get(
        &self,
        dv_ind: u32,
        bdfid: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_pci_id_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, bdfid)
        }
    }
    pub unsafe fn rsmi_dev_power_ave_get(
        &self,
        dv_ind: u32,
        sensor_ind: u32,
        power: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_power_ave_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, sensor_ind, power)
        }
    }
    pub unsafe fn rsmi_dev_energy_count_get(
        &self,
        dv_ind: u32,
        power: *mut u64,
        counter_resolution: *mut f32,
        timestamp: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_energy_count_get
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(dv_ind, power, counter_resolution, timestamp)
        }
    }
    pub unsafe fn rsmi_dev_power_cap_get(
        &self,
        dv_ind: u32,
        sensor_ind: u32,
        cap: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_power_cap_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, sensor_ind, cap)
        }
    }
    pub unsafe fn rsmi_dev_power_cap_default_get(
        &self,
        dv_ind: u32,
        default_cap: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_power_cap_default_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, default_cap)
        }
    }
    pub unsafe fn rsmi_dev_power_cap_range_get(
        &self,
        dv_ind: u32,
        sensor_ind: u32,
        max: *mut u64,
        min: *mut u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_power_cap_range_get
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, sensor_ind, max, min)
        }
    }
    pub unsafe fn rsmi_dev_power_cap_set(
        &self,
        dv_ind: u32,
        sensor_ind: u32,
        cap: u64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_power_cap_set
                .as_ref()
                .expect("Expected function, got error."))(dv_ind, sensor_ind, cap)
        }
    }
    pub unsafe fn rsmi_dev_temp_metric_get(
        &self,
        dv_ind: u32,
        sensor_type: u32,
        metric: rsmi_temperature_metric_t::Type,
        temperature: *mut i64,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_dev_temp_metric_get
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(dv_ind, sensor_type, metric, temperature)
        }
    }
    pub unsafe fn rsmi_version_str_get(
        &self,
        component: rsmi_sw_component_t::Type,
        ver_str: *mut ::std::os::raw::c_char,
        len: u32,
    ) -> rsmi_status_t::Type {
        unsafe {
            (self
                .rsmi_version_str_get
                .as_ref()
                .expect("Expected function, got error."))(component, ver_str, len)
        }
    }
}
