// Made from amdsmi.h of libamd-smi-dev 27.1.0 by tests/generated.rs.
pub type amdsmi_bdf_t = u64;

pub mod amdsmi_init_flags_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const AMDSMI_INIT_ALL_PROCESSORS: Type = 4294967295;
    pub const AMDSMI_INIT_AMD_CPUS: Type = 1;
    pub const AMDSMI_INIT_AMD_GPUS: Type = 2;
    pub const AMDSMI_INIT_NON_AMD_CPUS: Type = 4;
    pub const AMDSMI_INIT_NON_AMD_GPUS: Type = 8;
    pub const AMDSMI_INIT_AMD_APUS: Type = 3;
    pub const AMDSMI_INIT_AMD_NICS: Type = 16;
}
pub type amdsmi_processor_handle = *mut ::std::os::raw::c_void;
pub type amdsmi_socket_handle = *mut ::std::os::raw::c_void;
pub mod amdsmi_status_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const AMDSMI_STATUS_SUCCESS: Type = 0;
    pub const AMDSMI_STATUS_INVAL: Type = 1;
    pub const AMDSMI_STATUS_NOT_SUPPORTED: Type = 2;
    pub const AMDSMI_STATUS_NOT_YET_IMPLEMENTED: Type = 3;
    pub const AMDSMI_STATUS_FAIL_LOAD_MODULE: Type = 4;
    pub const AMDSMI_STATUS_FAIL_LOAD_SYMBOL: Type = 5;
    pub const AMDSMI_STATUS_DRM_ERROR: Type = 6;
    pub const AMDSMI_STATUS_API_FAILED: Type = 7;
    pub const AMDSMI_STATUS_TIMEOUT: Type = 8;
    pub const AMDSMI_STATUS_RETRY: Type = 9;
    pub const AMDSMI_STATUS_NO_PERM: Type = 10;
    pub const AMDSMI_STATUS_INTERRUPT: Type = 11;
    pub const AMDSMI_STATUS_IO: Type = 12;
    pub const AMDSMI_STATUS_ADDRESS_FAULT: Type = 13;
    pub const AMDSMI_STATUS_FILE_ERROR: Type = 14;
    pub const AMDSMI_STATUS_OUT_OF_RESOURCES: Type = 15;
    pub const AMDSMI_STATUS_INTERNAL_EXCEPTION: Type = 16;
    pub const AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS: Type = 17;
    pub const AMDSMI_STATUS_INIT_ERROR: Type = 18;
    pub const AMDSMI_STATUS_REFCOUNT_OVERFLOW: Type = 19;
    pub const AMDSMI_STATUS_DIRECTORY_NOT_FOUND: Type = 20;
    pub const AMDSMI_STATUS_IPC_ERROR: Type = 21;
    pub const AMDSMI_STATUS_BUSY: Type = 30;
    pub const AMDSMI_STATUS_NOT_FOUND: Type = 31;
    pub const AMDSMI_STATUS_NOT_INIT: Type = 32;
    pub const AMDSMI_STATUS_NO_SLOT: Type = 33;
    pub const AMDSMI_STATUS_DRIVER_NOT_LOADED: Type = 34;
    pub const AMDSMI_STATUS_MORE_DATA: Type = 39;
    pub const AMDSMI_STATUS_NO_DATA: Type = 40;
    pub const AMDSMI_STATUS_INSUFFICIENT_SIZE: Type = 41;
    pub const AMDSMI_STATUS_UNEXPECTED_SIZE: Type = 42;
    pub const AMDSMI_STATUS_UNEXPECTED_DATA: Type = 43;
    pub const AMDSMI_STATUS_NON_AMD_CPU: Type = 44;
    pub const AMDSMI_STATUS_NO_ENERGY_DRV: Type = 45;
    pub const AMDSMI_STATUS_NO_MSR_DRV: Type = 46;
    pub const AMDSMI_STATUS_NO_HSMP_DRV: Type = 47;
    pub const AMDSMI_STATUS_NO_HSMP_SUP: Type = 48;
    pub const AMDSMI_STATUS_NO_HSMP_MSG_SUP: Type = 49;
    pub const AMDSMI_STATUS_HSMP_TIMEOUT: Type = 50;
    pub const AMDSMI_STATUS_NO_DRV: Type = 51;
    pub const AMDSMI_STATUS_FILE_NOT_FOUND: Type = 52;
    pub const AMDSMI_STATUS_ARG_PTR_NULL: Type = 53;
    pub const AMDSMI_STATUS_AMDGPU_RESTART_ERR: Type = 54;
    pub const AMDSMI_STATUS_SETTING_UNAVAILABLE: Type = 55;
    pub const AMDSMI_STATUS_CORRUPTED_EEPROM: Type = 56;
    pub const AMDSMI_STATUS_MAP_ERROR: Type = 4294967294;
    pub const AMDSMI_STATUS_UNKNOWN_ERROR: Type = 4294967295;
}
pub mod amdsmi_temperature_type_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const AMDSMI_TEMPERATURE_TYPE_EDGE: Type = 0;
    pub const AMDSMI_TEMPERATURE_TYPE_FIRST: Type = 0;
    pub const AMDSMI_TEMPERATURE_TYPE_HOTSPOT: Type = 1;
    pub const AMDSMI_TEMPERATURE_TYPE_JUNCTION: Type = 1;
    pub const AMDSMI_TEMPERATURE_TYPE_VRAM: Type = 2;
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_0: Type = 3;
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_1: Type = 4;
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_2: Type = 5;
    pub const AMDSMI_TEMPERATURE_TYPE_HBM_3: Type = 6;
    pub const AMDSMI_TEMPERATURE_TYPE_PLX: Type = 7;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_FIRST: Type = 100;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_RETIMER_X: Type = 100;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_IBC: Type = 101;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_IBC_2: Type = 102;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_VDD18_VR: Type = 103;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_04_HBM_B_VR: Type = 104;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_OAM_X_04_HBM_D_VR: Type = 105;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_NODE_LAST: Type = 149;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VR_FIRST: Type = 150;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD0: Type = 150;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD1: Type = 151;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD2: Type = 152;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_VDD3: Type = 153;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOC_A: Type = 154;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOC_C: Type = 155;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOCIO_A: Type = 156;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_SOCIO_C: Type = 157;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDD_085_HBM: Type = 158;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_11_HBM_B: Type = 159;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_11_HBM_D: Type = 160;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDD_USR: Type = 161;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_11_E32: Type = 162;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_04_HBM_B: Type = 163;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_04_HBM_D: Type = 164;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_075_HBM_B: Type = 165;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_075_HBM_D: Type = 166;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_11_GTA_A: Type = 167;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_11_GTA_C: Type = 168;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDAN_075_GTA_A: Type = 169;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDAN_075_GTA_C: Type = 170;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDCR_075_UCIE: Type = 171;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_065_UCIEAA: Type = 172;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_065_UCIEAM_A: Type = 173;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDIO_065_UCIEAM_C: Type = 174;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VDDAN_075: Type = 175;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_VR_LAST: Type = 199;
    pub const AMDSMI_TEMPERATURE_TYPE_GPUBOARD_LAST: Type = 175;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_FIRST: Type = 200;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FPGA: Type = 200;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FRONT: Type = 201;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_BACK: Type = 202;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_OAM7: Type = 203;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_IBC: Type = 204;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_UFPGA: Type = 205;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_OAM1: Type = 206;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_0_1_HSC: Type = 207;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_2_3_HSC: Type = 208;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_4_5_HSC: Type = 209;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_6_7_HSC: Type = 210;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FPGA_0V72_VR: Type = 211;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_UBB_FPGA_3V3_VR: Type = 212;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_0_1_2_3_1V2_VR: Type = 213;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_4_5_6_7_1V2_VR: Type = 214;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_0_1_0V9_VR: Type = 215;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_4_5_0V9_VR: Type = 216;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_2_3_0V9_VR: Type = 217;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_RETIMER_6_7_0V9_VR: Type = 218;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_0_1_2_3_3V3_VR: Type = 219;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_OAM_4_5_6_7_3V3_VR: Type = 220;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_IBC_HSC: Type = 221;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_IBC: Type = 222;
    pub const AMDSMI_TEMPERATURE_TYPE_BASEBOARD_LAST: Type = 249;
    pub const AMDSMI_TEMPERATURE_TYPE__MAX: Type = 249;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_power_cap_info_t {
    pub power_cap: u64,
    pub default_power_cap: u64,
    pub dpm_cap: u64,
    pub min_power_cap: u64,
    pub max_power_cap: u64,
    pub reserved: [u64; 3usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_asic_info_t {
    pub market_name: [::std::os::raw::c_char; 256usize],
    pub vendor_id: u32,
    pub vendor_name: [::std::os::raw::c_char; 256usize],
    pub subvendor_id: u32,
    pub device_id: u64,
    pub rev_id: u32,
    pub asic_serial: [::std::os::raw::c_char; 256usize],
    pub oam_id: u32,
    pub num_of_compute_units: u32,
    pub target_graphics_version: u64,
    pub subsystem_id: u32,
    pub flags: u64,
    pub physical_acc_id: u32,
    pub chip_rev_id: u32,
    pub external_rev_id: u32,
    pub reserved: [u32; 15usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_driver_info_t {
    pub driver_version: [::std::os::raw::c_char; 256usize],
    pub driver_date: [::std::os::raw::c_char; 256usize],
    pub driver_name: [::std::os::raw::c_char; 256usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_board_info_t {
    pub model_number: [::std::os::raw::c_char; 256usize],
    pub product_serial: [::std::os::raw::c_char; 256usize],
    pub fru_id: [::std::os::raw::c_char; 256usize],
    pub product_name: [::std::os::raw::c_char; 256usize],
    pub manufacturer_name: [::std::os::raw::c_char; 256usize],
    pub reserved: [u64; 64usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_power_info_t {
    pub socket_power: u64,
    pub current_socket_power: u32,
    pub average_socket_power: u32,
    pub gfx_voltage: u64,
    pub soc_voltage: u64,
    pub mem_voltage: u64,
    pub power_limit: u32,
    pub ubb_power: u32,
    pub reserved: [u64; 18usize],
}
pub mod amdsmi_temperature_metric_t {
    pub type Type = ::std::os::raw::c_uint;
    pub const AMDSMI_TEMP_CURRENT: Type = 0;
    pub const AMDSMI_TEMP_FIRST: Type = 0;
    pub const AMDSMI_TEMP_MAX: Type = 1;
    pub const AMDSMI_TEMP_MIN: Type = 2;
    pub const AMDSMI_TEMP_MAX_HYST: Type = 3;
    pub const AMDSMI_TEMP_MIN_HYST: Type = 4;
    pub const AMDSMI_TEMP_CRITICAL: Type = 5;
    pub const AMDSMI_TEMP_CRITICAL_HYST: Type = 6;
    pub const AMDSMI_TEMP_EMERGENCY: Type = 7;
    pub const AMDSMI_TEMP_EMERGENCY_HYST: Type = 8;
    pub const AMDSMI_TEMP_CRIT_MIN: Type = 9;
    pub const AMDSMI_TEMP_CRIT_MIN_HYST: Type = 10;
    pub const AMDSMI_TEMP_OFFSET: Type = 11;
    pub const AMDSMI_TEMP_LOWEST: Type = 12;
    pub const AMDSMI_TEMP_HIGHEST: Type = 13;
    pub const AMDSMI_TEMP_SHUTDOWN: Type = 14;
    pub const AMDSMI_TEMP_LAST: Type = 14;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct amdsmi_version_t {
    pub major: u32,
    pub minor: u32,
    pub release: u32,
    pub build: *const ::std::os::raw::c_char,
}
pub struct AmdSmi {
    __library: ::libloading::Library,
    pub amdsmi_init: Result<
        unsafe extern "C" fn(init_flags: u64) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_shut_down: Result<
        unsafe extern "C" fn() -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_socket_handles: Result<
        unsafe extern "C" fn(
            socket_count: *mut u32,
            socket_handles: *mut amdsmi_socket_handle,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_processor_handles: Result<
        unsafe extern "C" fn(
            socket_handle: amdsmi_socket_handle,
            processor_count: *mut u32,
            processor_handles: *mut amdsmi_processor_handle,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_gpu_device_bdf: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            bdf: *mut amdsmi_bdf_t,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_energy_count: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            energy_accumulator: *mut u64,
            counter_resolution: *mut f32,
            timestamp: *mut u64,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_set_power_cap: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            sensor_ind: u32,
            cap: u64,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_lib_version: Result<
        unsafe extern "C" fn(version: *mut amdsmi_version_t) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_gpu_driver_info: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            info: *mut amdsmi_driver_info_t,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_gpu_asic_info: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            info: *mut amdsmi_asic_info_t,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_gpu_board_info: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            info: *mut amdsmi_board_info_t,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_power_cap_info: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            sensor_ind: u32,
            info: *mut amdsmi_power_cap_info_t,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_temp_metric: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            sensor_type: amdsmi_temperature_type_t::Type,
            metric: amdsmi_temperature_metric_t::Type,
            temperature: *mut i64,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
    pub amdsmi_get_power_info: Result<
        unsafe extern "C" fn(
            processor_handle: amdsmi_processor_handle,
            info: *mut amdsmi_power_info_t,
        ) -> amdsmi_status_t::Type,
        ::libloading::Error,
    >,
}
impl AmdSmi {
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
        let amdsmi_init = unsafe { __library.get(b"amdsmi_init\0") }.map(|sym| *sym);
        let amdsmi_shut_down = unsafe { __library.get(b"amdsmi_shut_down\0") }
            .map(|sym| *sym);
        let amdsmi_get_socket_handles = unsafe {
            __library.get(b"amdsmi_get_socket_handles\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_processor_handles = unsafe {
            __library.get(b"amdsmi_get_processor_handles\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_gpu_device_bdf = unsafe {
            __library.get(b"amdsmi_get_gpu_device_bdf\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_energy_count = unsafe {
            __library.get(b"amdsmi_get_energy_count\0")
        }
            .map(|sym| *sym);
        let amdsmi_set_power_cap = unsafe { __library.get(b"amdsmi_set_power_cap\0") }
            .map(|sym| *sym);
        let amdsmi_get_lib_version = unsafe {
            __library.get(b"amdsmi_get_lib_version\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_gpu_driver_info = unsafe {
            __library.get(b"amdsmi_get_gpu_driver_info\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_gpu_asic_info = unsafe {
            __library.get(b"amdsmi_get_gpu_asic_info\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_gpu_board_info = unsafe {
            __library.get(b"amdsmi_get_gpu_board_info\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_power_cap_info = unsafe {
            __library.get(b"amdsmi_get_power_cap_info\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_temp_metric = unsafe {
            __library.get(b"amdsmi_get_temp_metric\0")
        }
            .map(|sym| *sym);
        let amdsmi_get_power_info = unsafe { __library.get(b"amdsmi_get_power_info\0") }
            .map(|sym| *sym);
        Ok(AmdSmi {
            __library,
            amdsmi_init,
            amdsmi_shut_down,
            amdsmi_get_socket_handles,
            amdsmi_get_processor_handles,
            amdsmi_get_gpu_device_bdf,
            amdsmi_get_energy_count,
            amdsmi_set_power_cap,
            amdsmi_get_lib_version,
            amdsmi_get_gpu_driver_info,
            amdsmi_get_gpu_asic_info,
            amdsmi_get_gpu_board_info,
            amdsmi_get_power_cap_info,
            amdsmi_get_temp_metric,
            amdsmi_get_power_info,
        })
    }
    pub unsafe fn amdsmi_init(&self, init_flags: u64) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_init
                .as_ref()
                .expect("Expected function, got error."))(init_flags)
        }
    }
    pub unsafe fn amdsmi_shut_down(&self) -> amdsmi_status_t::Type {
        unsafe {
            (self.amdsmi_shut_down.as_ref().expect("Expected function, got error."))()
        }
    }
    pub unsafe fn amdsmi_get_socket_handles(
        &self,
        socket_count: *mut u32,
        socket_handles: *mut amdsmi_socket_handle,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_socket_handles
                .as_ref()
                .expect("Expected function, got error."))(socket_count, socket_handles)
        }
    }
    pub unsafe fn amdsmi_get_processor_handles(
        &self,
        socket_handle: amdsmi_socket_handle,
        processor_count: *mut u32,
        processor_handles: *mut amdsmi_processor_handle,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_processor_handles
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(socket_handle, processor_count, processor_handles)
        }
    }
    pub unsafe fn amdsmi_get_gpu_device_bdf(
        &self,
        processor_handle: amdsmi_processor_handle,
        bdf: *mut amdsmi_bdf_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_gpu_device_bdf
                .as_ref()
                .expect("Expected function, got error."))(processor_handle, bdf)
        }
    }
    pub unsafe fn amdsmi_get_energy_count(
        &self,
        processor_handle: amdsmi_processor_handle,
        energy_accumulator: *mut u64,
        counter_resolution: *mut f32,
        timestamp: *mut u64,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_energy_count
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(processor_handle, energy_accumulator, counter_resolution, timestamp)
        }
    }
    pub unsafe fn amdsmi_set_power_cap(
        &self,
        processor_handle: amdsmi_processor_handle,
        sensor_ind: u32,
        cap: u64,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_set_power_cap
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(processor_handle, sensor_ind, cap)
        }
    }
    pub unsafe fn amdsmi_get_lib_version(
        &self,
        version: *mut amdsmi_version_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_lib_version
                .as_ref()
                .expect("Expected function, got error."))(version)
        }
    }
    pub unsafe fn amdsmi_get_gpu_driver_info(
        &self,
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_driver_info_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_gpu_driver_info
                .as_ref()
                .expect("Expected function, got error."))(processor_handle, info)
        }
    }
    pub unsafe fn amdsmi_get_gpu_asic_info(
        &self,
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_asic_info_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_gpu_asic_info
                .as_ref()
                .expect("Expected function, got error."))(processor_handle, info)
        }
    }
    pub unsafe fn amdsmi_get_gpu_board_info(
        &self,
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_board_info_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_gpu_board_info
                .as_ref()
                .expect("Expected function, got error."))(processor_handle, info)
        }
    }
    pub unsafe fn amdsmi_get_power_cap_info(
        &self,
        processor_handle: amdsmi_processor_handle,
        sensor_ind: u32,
        info: *mut amdsmi_power_cap_info_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_power_cap_info
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(processor_handle, sensor_ind, info)
        }
    }
    pub unsafe fn amdsmi_get_temp_metric(
        &self,
        processor_handle: amdsmi_processor_handle,
        sensor_type: amdsmi_temperature_type_t::Type,
        metric: amdsmi_temperature_metric_t::Type,
        temperature: *mut i64,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_temp_metric
                .as_ref()
                .expect(
                    "Expected function, got error.",
                ))(processor_handle, sensor_type, metric, temperature)
        }
    }
    pub unsafe fn amdsmi_get_power_info(
        &self,
        processor_handle: amdsmi_processor_handle,
        info: *mut amdsmi_power_info_t,
    ) -> amdsmi_status_t::Type {
        unsafe {
            (self
                .amdsmi_get_power_info
                .as_ref()
                .expect("Expected function, got error."))(processor_handle, info)
        }
    }
}
